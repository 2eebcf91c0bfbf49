package names

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// FileName is the name of the file with the last good answers, in the directory for what
// outlasts a restart.
const FileName = "names.json"

// stateVersion is the version of a state. Files of other versions are not used.
const stateVersion = 1

// state has the last good answers.
type state struct {
	Version int         `json:"version"`
	Names   []keptNames `json:"names"`
}

type keptNames struct {
	Name    string       `json:"name"`
	SRV     bool         `json:"srv,omitempty"`
	Records []keptRecord `json:"records"`
}

type keptRecord struct {
	Address  netip.Addr `json:"address"`
	Port     uint16     `json:"port,omitempty"`
	Weight   uint16     `json:"weight,omitempty"`
	Priority uint8      `json:"priority,omitempty"`
	Target   string     `json:"target,omitempty"`
}

// readState reads the answers of the previous process. A file that cannot be used is ignored: DNS
// has the answers.
func (e *Engine) readState() {
	if e.kept != nil || e.State == "" {
		return
	}
	e.kept = make(map[key][]record)
	data, err := atomicfile.Read(e.State)
	if err == nil {
		e.kept, err = parseState(data)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.Log.Warn("the last addresses of names cannot be read; names have none until DNS answers", "file", e.State, "error", err)
	}
}

// parseState reads a state. Records that no answer could have are an error.
func parseState(data []byte) (map[key][]record, error) {
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read addresses of names: %w", err)
	}
	if s.Version != stateVersion || len(s.Names) > budget.Names {
		return nil, fmt.Errorf("read addresses of names: version %d with %d names is not one that this version writes", s.Version, len(s.Names))
	}
	out := make(map[key][]record, len(s.Names))
	for _, n := range s.Names {
		var r result
		for _, k := range n.Records {
			if !usable(k.Address) || n.SRV != (k.Port != 0) || k.Priority > maxRank {
				return nil, fmt.Errorf("read addresses of names: %q cannot have %s", n.Name, k.Address)
			}
			r.records = append(r.records, record{model.NamedAddress{Address: k.Address, Port: k.Port, Weight: k.Weight, Priority: k.Priority}, k.Target})
		}
		out[key{n.Name, n.SRV}] = r.limited().records
	}
	return out, nil
}

// save writes the answers if they have changed. A failure is logged once; the next change tries
// again.
func (e *Engine) save() {
	e.mu.Lock()
	if e.State == "" || !e.unsaved {
		e.mu.Unlock()
		return
	}
	e.unsaved = false
	s := state{Version: stateVersion, Names: []keptNames{}}
	for k, n := range e.names {
		if len(n.records) == 0 {
			continue
		}
		of := keptNames{Name: k.name, SRV: k.records}
		for _, r := range n.records {
			of.Records = append(of.Records, keptRecord{r.Address, r.Port, r.Weight, r.Priority, r.target})
		}
		s.Names = append(s.Names, of)
	}
	e.mu.Unlock()
	slices.SortFunc(s.Names, func(a, b keptNames) int { return strings.Compare(a.Name, b.Name) })
	data, err := json.MarshalIndent(s, "", " ")
	if err == nil {
		err = atomicfile.Write(e.State, append(data, '\n'), 0o600)
	}
	if err != nil && e.saved == nil {
		e.Log.Error("the addresses of names cannot be kept for the next start", "file", e.State, "error", err)
	}
	e.saved = err
}
