package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/footprint"
	"github.com/nftproxy/nftproxy/internal/kernel"
)

// lastRecord returns the record of the last run if it is about this kernel, and its generation
// still stands for the same rules; nil: there is none.
func (d *Daemon) lastRecord(rules *kernel.Conn) *agent.Record {
	r, err := d.takeRecord()
	if err == nil && r != nil {
		var here kernel.Identity
		var now kernel.Moment
		if here, err = rules.Identity(); err == nil {
			now, err = kernel.Now()
		}
		if err == nil && here == r.Kernel && r.Made.Distinguishes(now) {
			return r.known()
		}
	}
	d.unused(err)
	return nil
}

func (d *Daemon) unused(err error) {
	if err != nil {
		d.Log.Debug("the record of the last run is not used", "error", err)
	}
}

// record is what is in the file.
type record struct {
	agent.Record
	Program []byte // its identity: another one may make other rules of the same objects
}

// known returns what the record says to this program.
func (r *record) known() *agent.Record {
	if self, err := program(); err != nil || !bytes.Equal(self, r.Program) {
		r.Objects = nil
	}
	return &r.Record
}

// takeRecord returns the record that the last run has left, and removes it; nil: there is none. It identifies
// the rules in the kernel, so that they need not be read back (13.30). It is of use as long as no other program
// makes a transaction, and is therefore removed when it is read.
func (d *Daemon) takeRecord() (*record, error) {
	if d.RuntimeDirectory == "" {
		return nil, nil
	}
	path := filepath.Join(d.RuntimeDirectory, footprint.RulesFile)
	data, err := atomicfile.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := errors.Join(err, os.Remove(path)); err != nil {
		return nil, err
	}
	r := new(record)
	return r, json.Unmarshal(data, r)
}

// leaveRecord writes the record for the next run, if the process knows what the tables hold
// without reading them: as their owner, or because it has seen all transactions of other
// programs.
func (w *work) leaveRecord(rules *kernel.Conn) {
	if w.RuntimeDirectory == "" {
		return
	}
	if err := w.writeRecord(rules); err != nil {
		w.Log.Debug("no record of the rules is left: the next start reads them back", "error", err)
	}
}

var errUnsure = errors.New("the kernel may hold something else")

func (w *work) writeRecord(rules *kernel.Conn) error {
	now, err := kernel.Now() // before the generation is read
	if err != nil {
		return err
	}
	if w.watched != nil { // what it has reported counts below
		if err := w.watched.stop(); err != nil {
			return err
		}
	}
	known := w.agent.Record()
	if known == nil {
		return errUnsure
	}
	r := record{Record: *known}
	r.Made = now
	if r.Program, err = program(); err != nil {
		return err
	}
	if r.Kernel, err = rules.Identity(); err != nil {
		return err
	}
	if r.Generation, err = w.lastGeneration(rules); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(w.RuntimeDirectory, footprint.RulesFile), data, 0o600)
}

// lastGeneration returns the generation in which the kernel holds what the agent knows.
func (w *work) lastGeneration(rules *kernel.Conn) (uint32, error) {
	if w.watched != nil {
		generation, changed, err := w.watched.Rest(rules)
		if err == nil && changed {
			err = errUnsure
		}
		return generation, err
	}
	owns, err := rules.IsOwner()
	if err == nil && !owns {
		err = errUnsure
	}
	if err != nil {
		return 0, err
	}
	return rules.Generation()
}
