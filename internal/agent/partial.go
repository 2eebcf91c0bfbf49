package agent

import (
	"maps"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// start returns the state for all of the router's routes, and the change to them from what
// the kernel holds. Services that may be in a part of the source that was never read stay
// as they are there, and so do quarantined ones.
func (a *Agent) start() (*render.State, nft.Delta, error) {
	parts := a.quarantine.parts
	if a.own == nil {
		rules, delta := render.StartHolding(a.wanted(), parts)
		delta.Keep = a.quarantine.names
		return rules, delta, nil
	}
	if len(a.quarantine.services) == 0 {
		held, err := a.Applier.Held()
		if err != nil {
			return nil, nft.Delta{}, err
		}
		parts = render.PartsIn(held)
	}
	rules, delta := render.StartHolding(a.wanted(), parts)
	delta.Own = maps.Clone(a.own)
	maps.DeleteFunc(delta.Own, func(name model.ServiceName, _ bool) bool { return a.isQuarantined(name) })
	return rules, delta, nil
}

// follow notes which Services an update is about, while a part of the source was never
// read. Each sync compares all rules then: the kernel also has rules that were not applied
// by this process.
func (a *Agent) follow(u *model.Update) {
	if !u.Partial {
		if a.own != nil {
			a.own = nil
			a.Applier.Forget()
		}
		return
	}
	if a.own == nil {
		a.own = make(map[model.ServiceName]bool, len(u.Services))
	}
	for name := range u.Services {
		a.own[name] = true
	}
}
