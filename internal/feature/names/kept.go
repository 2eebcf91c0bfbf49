package names

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/budget"
)

// FileName is the name of the file with the last good answers, in the directory for what
// outlasts a restart.
const FileName = "names.json"

// stateVersion is the version of a state. Files of other versions are not used.
const stateVersion = 1

// state has the last good answers.
type state struct {
	Version int        `json:"version"`
	Names   []keptName `json:"names"`
}

type keptName struct {
	Name    string   `json:"name"`
	SRV     bool     `json:"srv,omitempty"`
	Records []record `json:"records"`
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
		for _, r := range n.Records {
			if !usable(r.Address) || n.SRV != (r.Port != 0) || r.Priority > maxRank {
				return nil, fmt.Errorf("read addresses of names: %q cannot have %s", n.Name, r.Address)
			}
		}
		out[key{n.Name, n.SRV}] = result{records: n.Records}.limited().records
	}
	return out, nil
}

// save writes the answers. A failure is logged once; the next change tries
// again.
func (e *Engine) save() {
	if e.State == "" {
		return
	}
	e.mu.Lock()
	s := state{Version: stateVersion, Names: []keptName{}}
	for k, n := range e.names {
		if len(n.records) > 0 {
			s.Names = append(s.Names, keptName{k.name, k.records, n.records})
		}
	}
	e.mu.Unlock()
	slices.SortFunc(s.Names, func(a, b keptName) int { return strings.Compare(a.Name, b.Name) })
	data, err := json.MarshalIndent(s, "", " ")
	if err == nil {
		err = atomicfile.Write(e.State, append(data, '\n'), 0o600)
	}
	if err != nil && e.saved == nil {
		e.Log.Error("the addresses of names cannot be kept for the next start", "file", e.State, "error", err)
	}
	e.saved = err
}
