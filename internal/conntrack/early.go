package conntrack

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// early finds flows of a family that are older than their frontend (9.41). A client that
// gets no answer sends again and again, which keeps its untranslated entry alive, and
// packets of an entry meet no rule. Nothing is lost with one that never had an answer.
//
// Only a frontend that comes can have such flows: one that is there translates, refuses or
// drops the first packet. So nothing is listed for any other change, and the kernel leaves
// out all entries that are answered or translated.
type early struct {
	family model.Family
	// clusterIPs have come since the last cleanup. They refuse whatever no frontend serves
	// (4.23).
	clusterIPs map[netip.Addr]struct{}
	progress   // of frontends that have come
}

// takeEarly records which frontends have come, and on which addresses NodePorts.
func (c *Cleaner) takeEarly(changes []model.RouteChange, nodePorts []netip.Addr) {
	for _, e := range c.early {
		for i := range changes {
			if change := &changes[i]; change.Old == nil && change.New != nil && !change.Frontend.IsEcho() && model.FamilyOf(change.Frontend.Address) == e.family {
				if change.New.Kind == model.ClusterIP {
					e.clusterIPs[change.Frontend.Address] = struct{}{}
				}
				e.markChanged()
			}
		}
		if c.followed && slices.ContainsFunc(nodePorts, func(a netip.Addr) bool {
			return model.FamilyOf(a) == e.family && !slices.Contains(c.nodePorts, a)
		}) {
			e.markChanged()
		}
	}
	if c.followed = true; !slices.Equal(nodePorts, c.nodePorts) {
		c.nodePorts = slices.Clone(nodePorts)
	}
}

// earlyFlows is the cleanup of flows that are older than their frontend.
func (c *Cleaner) earlyFlows(e *early) cleanup {
	stale := func(f Flow) bool { return c.isEarly(e, f) }
	return cleanup{&e.progress, e.family,
		func(f func(Flow)) error { return c.kernel.ListUnanswered(e.family, f) },
		func(f Flow) bool {
			c.still.Lock()
			defer c.still.Unlock()
			c.mu.Lock()
			defer c.mu.Unlock()
			return stale(f)
		}, stale,
		"deleted unanswered conntrack entries that were older than their frontend", "clients that began before a frontend came may wait until they give up",
		[]any{"family", e.family}, func() { e.clusterIPs = make(map[netip.Addr]struct{}) }} // clear would keep its size
}

// isEarly reports whether the rules decide otherwise about the flow now, because it is older
// than the frontend. Still is held.
func (c *Cleaner) isEarly(e *early, f Flow) bool {
	if f.Answered || f.Answers != f.Dialled || f.Protocol == model.TCP && !f.Opening {
		return false
	}
	if _, refuses := e.clusterIPs[f.Dialled.Addr()]; refuses {
		return true
	}
	_, served := c.Owner(model.Frontend{Address: f.Dialled.Addr(), Protocol: f.Protocol, Port: f.Dialled.Port()})
	return served
}
