package daemon

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/probe"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// BasisPath is where a daemon answers with a [Basis] on its metrics address.
const BasisPath = "/basis"

// BasisVersion is the version of a [Basis]. Another one means that fields do not have the
// meaning that this program knows.
const BasisVersion = 1

// Basis is what the rules of a daemon follow from besides its objects: with it, a dry run on
// the same input comes to the same rules. The names of the JSON fields are stable.
type Basis struct {
	Version int `json:"version"`
	// Settings are the flags that the rules depend on, with their effective values.
	Settings map[string]string `json:"settings"`
	Families []string          `json:"families"`           // of the machine
	NoLimits bool              `json:"noLimits,omitempty"` // the kernel cannot limit connections
	// Files and Cluster report where the objects come from.
	Files   bool `json:"files"`
	Cluster bool `json:"cluster"`
	// Failing are the endpoints that fail their health check.
	Failing []probe.Failing `json:"failing"`
	// Drained is the list in force of endpoints that are drained.
	Drained []api.Drained `json:"drained"`
	// Isolates reports that files with mistakes do not keep the others from being used.
	// InForce are those that are not used as they are.
	Isolates bool            `json:"isolates,omitempty"`
	InForce  []files.InForce `json:"inForce,omitempty"`
}

// Serves reports whether the machine of the daemon has a family.
func (b *Basis) Serves(f model.Family) bool {
	return slices.Contains(b.Families, f.String())
}

func (w *work) basis() *Basis {
	b := &Basis{
		Version: BasisVersion, Settings: w.Config.RuleSettings(), Families: []string{},
		Files: w.Cluster == nil || w.Joined != nil, Cluster: w.Cluster != nil,
		NoLimits: w.node.NoLimits, Failing: w.checks.Failing(), Drained: []api.Drained{},
	}
	for _, f := range w.node.Families {
		b.Families = append(b.Families, f.String())
	}
	if w.drains != nil {
		b.Drained = w.drains.List().Report()
	}
	if w.Isolation != nil {
		b.Isolates, b.InForce = true, w.Isolation.InForce()
	}
	return b
}

// serveBasis answers with what the rules follow from. An answer is held in memory: few are
// given at the same time.
func (w *work) serveBasis(rw http.ResponseWriter, _ *http.Request) {
	done := w.answers.Begin(rw)
	if done == nil {
		return
	}
	defer done()
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(w.basis()) // fails if the client is gone
}
