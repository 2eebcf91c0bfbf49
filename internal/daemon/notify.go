package daemon

import (
	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/model"
)

// notify reports to systemd that the rules are active, and what may have changed
// (12.80).
func (w *work) notify(s *agent.Sync) {
	if s.Err == nil {
		w.systemd.Ready()
	}
	w.systemd.Changed()
}

// load reads the source. If it cannot be used, no sync follows.
func (w *work) load() (*model.Update, error) {
	u, err := w.Source.Load()
	if err != nil {
		w.systemd.Changed()
	}
	return u, err
}
