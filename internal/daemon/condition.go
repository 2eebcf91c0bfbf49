package daemon

import (
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/feature/condition"
	"github.com/nftproxy/nftproxy/internal/health"
)

// followCondition has the condition of the Node follow what the health server answers (10.27).
func (w *work) followCondition() {
	if w.Condition == nil {
		return
	}
	inherited := hasRules() // before the first sync
	w.condition = condition.New(condition.Config{
		Connect: w.Condition, Node: w.node.NodeName, Log: w.Log,
		State: func() (condition.State, bool) {
			p, known := w.health.Programmed(w.clusterProgress(), inherited)
			return condition.State{True: p.Yes, Reason: p.Reason, Message: p.Message}, known
		},
	})
	w.agent.Observers = append(w.agent.Observers, func(*agent.Sync) { w.condition.Changed() })
}

// clusterProgress is the progress of the health server, but without syncs of files alone:
// pods need the Services of the cluster.
func (w *work) clusterProgress() health.Progress {
	p := w.health.Progress()
	if w.Joined != nil && !w.Joined.Complete() {
		p.LastSync, p.Pending = time.Time{}, w.pending(p.Started)
	}
	return p
}
