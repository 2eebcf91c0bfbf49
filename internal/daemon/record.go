package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/kernel"
)

// recordName is the file in which a process that ends leaves what identifies the rules in
// the kernel, so that the next one need not read them back (13.30). It is of use as long as
// no other program makes a transaction, and is therefore removed when it is read.
const recordName = "rules.json"

// reclaim takes over the tables of an earlier process, and returns its record if they have
// not changed since; nil: they may have.
func (d *Daemon) reclaim(rules *kernel.Conn) *agent.Record {
	r, err := d.takeRecord()
	if err == nil && r != nil {
		var here kernel.Identity
		if here, err = rules.Identity(); err == nil && here == r.Kernel {
			var unchanged bool
			if unchanged, err = rules.Reclaim(r.Generation); unchanged {
				return r.known()
			}
		}
	}
	if err != nil {
		d.Log.Debug("the record of the last run is not used", "error", err)
	}
	return nil
}

// record is what is in the file.
type record struct {
	agent.Record
	Program []byte // a hash of it: another one may make other rules of the same objects
}

// known returns what the record says to this program.
func (r *record) known() *agent.Record {
	if self, err := program(); err != nil || !bytes.Equal(self, r.Program) {
		r.Objects = nil
	}
	return &r.Record
}

// program returns a hash of the program that runs.
func program() ([]byte, error) {
	f, err := os.Open("/proc/self/exe") // the same file also when another one has its name
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

// takeRecord returns the record of the last run, and removes it; nil: there is none.
func (d *Daemon) takeRecord() (*record, error) {
	if d.RuntimeDirectory == "" {
		return nil, nil
	}
	path := filepath.Join(d.RuntimeDirectory, recordName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := errors.Join(err, os.Remove(path)); err != nil {
		return nil, err
	}
	r := new(record)
	return r, json.Unmarshal(data, r)
}

// leaveRecord writes the record for the next run. Only the owner of the tables knows what
// they hold without reading them.
func (d *Daemon) leaveRecord(a *agent.Agent, rules *kernel.Conn) {
	if d.RuntimeDirectory == "" {
		return
	}
	if err := d.writeRecord(a, rules); err != nil {
		d.Log.Debug("no record of the rules is left: the next start reads them back", "error", err)
	}
}

func (d *Daemon) writeRecord(a *agent.Agent, rules *kernel.Conn) error {
	owns, err := rules.IsOwner()
	if err != nil || !owns {
		return err
	}
	known := a.Record()
	if known == nil {
		return errors.New("the kernel may hold something else")
	}
	r := record{Record: *known}
	if r.Program, err = program(); err != nil {
		return err
	}
	if r.Kernel, err = rules.Identity(); err != nil {
		return err
	}
	if r.Generation, err = rules.Generation(); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(d.RuntimeDirectory, recordName), data, 0o600)
}
