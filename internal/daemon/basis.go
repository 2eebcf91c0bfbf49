package daemon

import (
	"encoding/json"
	"net/http"

	"github.com/nftproxy/nftproxy/internal/api"
)

func (w *work) basis() *api.Basis {
	b := &api.Basis{
		Version: api.BasisVersion, Settings: w.Config.RuleSettings(), Families: []string{},
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

// serveBasis answers with the basis of the rules. An answer is held in memory: few are given
// at the same time.
func (w *work) serveBasis(rw http.ResponseWriter, _ *http.Request) {
	done := w.answers.Begin(rw)
	if done == nil {
		return
	}
	defer done()
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(w.basis()) // fails if the client is gone
}
