package prove

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/bytecode"
)

// checkFull checks that a client for which a set has no room is served like others (4.88, 5.12).
func (p *prover) checkFull(c Class, want expectation, left []bytecode.Element) {
	defer func() { p.machine.Full = nil }()
	var checked []string
	for _, e := range left {
		if slices.Contains(checked, e.Set) {
			continue
		}
		checked = append(checked, e.Set)
		p.machine.Full = []string{e.Set}
		got := p.machine.Follow(c.Packet)
		full := c
		full.Client += ", and no room in " + e.Set
		p.note(full, want, got, want.differs(&full, got, p.world.tolerance(want.frontend)))
	}
}

// checkLimits checks that a client beyond its limit is dropped (4.89), and that others do not change
// that: another address at the same frontend, and the same address at another one (4.87). left is
// what a packet of the class leaves in sets.
func (p *prover) checkLimits(c Class, want expectation, left []bytecode.Element) {
	defer func() { p.machine.Exceeded = nil }()
	p.machine.Exceeded = left
	own, dropped := c, expectation{verdict: bytecode.Drop}
	own.Client += ", beyond the limit of a client"
	got := p.machine.Follow(c.Packet)
	p.note(own, dropped, got, dropped.differs(&own, got, tolerance{}))

	others := []bytecode.Packet{c.Packet}
	others[0].Source = nextTo(c.Source)
	if port := p.world.portBeside(want.frontend); port != 0 {
		others = append(others, c.Packet)
		others[1].Port = port
	}
	for _, other := range others {
		p.machine.Exceeded = nil
		p.machine.Exceeded = p.machine.Follow(other)[0].Left
		got := p.machine.Follow(c.Packet)
		within := c
		within.Client += ", while another one is beyond its limit"
		p.note(within, want, got, want.differs(&within, got, p.world.tolerance(want.frontend)))
	}
}

// nextTo returns the neighbor of an address.
func nextTo(a netip.Addr) netip.Addr {
	if next := a.Next(); next.IsValid() {
		return next
	}
	return a.Prev()
}

// portBeside returns the port of another limited frontend at the address of one; 0: there is none.
func (w *World) portBeside(f *frontend) uint16 {
	for _, o := range w.all {
		if o.address == f.address && o.port != f.port && w.limitsClients(o) {
			return o.port
		}
	}
	return 0
}
