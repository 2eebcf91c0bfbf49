package probe

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Each calls f with the result of every endpoint of every Service that is checked, in no
// order. No check starts or ends meanwhile: f is quick, and does not call the engine.
func (e *Engine) Each(f func(model.ServiceName, netip.Addr, Result)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.services {
		for _, m := range s.members {
			f(s.name, m.address, m.target.result())
		}
	}
}
