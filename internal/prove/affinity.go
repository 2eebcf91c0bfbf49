package prove

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/bytecode"
)

// checkAffinity compares what a connection leaves behind, and where the next one of the same
// client goes (section 5).
func (p *prover) checkAffinity(c Class, want expectation, got []bytecode.Result) {
	for _, r := range got {
		i := slices.IndexFunc(want.targets, func(t target) bool { return t.at == r.To })
		if r.Verdict != bytecode.Pass || i < 0 {
			return // a wrong one, which is counted
		}
		if !slices.ContainsFunc(r.Left, func(e bytecode.Element) bool { return !e.Deleted && e.Timeout == want.remembers }) {
			p.note(c, want, got, "the client is not remembered for "+want.remembers.String())
			return
		}
		p.checkBound(c, want, r, want.targets[i])
	}
	if len(got) > 0 {
		p.checkStale(c, want, got[0])
	}
}

// checkBound checks that a bound client goes to its endpoint (5.4), and is remembered again (5.3).
func (p *prover) checkBound(c Class, want expectation, first bytecode.Result, to target) {
	c.Client += ", bound to " + to.at.String()
	to.share = 1
	want.targets = []target{to}
	p.machine.Bound = first.Left
	got := p.machine.Follow(c.Packet)
	p.machine.Bound = nil
	why := want.differs(&c, got, tolerance{exact, 0})
	if why == "" && !slices.ContainsFunc(got[0].Left, func(e bytecode.Element) bool { return !e.Deleted && e.Timeout == want.remembers }) {
		why = "the timeout does not start again"
	}
	p.note(c, want, got, why)
	if want.frontend.service.Balance {
		isNone := func(e bytecode.Element) bool { return e.Timeout != want.remembers }
		p.checkTogether(c, want.frontend, slices.DeleteFunc(slices.Clone(first.Left), isNone), to.at.Addr())
	}
}

// checkTogether checks that the client of a Balance goes to the same server at its other ports, or to
// any one where they do not have it (5.16), later than the connection that has bound it.
func (p *prover) checkTogether(c Class, f *frontend, left []bytecode.Element, server netip.Addr) {
	for _, o := range p.world.all {
		if o.service != f.service || o.addr != f.addr || o == f {
			continue
		}
		c.Protocol, c.Port = uint8(o.protocol), o.port
		want := p.world.expect(&c.Packet)
		isServer := func(t target) bool { return t.at.Addr() == server }
		there := slices.DeleteFunc(slices.Clone(want.targets), func(t target) bool { return !isServer(t) })
		if len(there) > 1 || len(f.cluster) != len(o.cluster) && len(there) > 0 {
			continue // servers with one address are told apart by the order of their ports
		}
		may := p.world.tolerance(o)
		if len(there) == 1 {
			there[0].share = 1
			want.targets, may = there, tolerance{exact, 0}
		}
		p.machine.Bound = left
		got := p.machine.Follow(c.Packet)
		p.machine.Bound = nil
		p.note(c, want, got, want.differs(&c, got, may))
	}
}

// checkStale checks a client that is bound to an endpoint that the frontend does not have: its
// packet is lost and releases it (5.6), and where ports share a binding it gets another endpoint
// (5.16).
func (p *prover) checkStale(c Class, want expectation, first bytecode.Result) {
	c.Client += ", bound to an endpoint that has left"
	shared := want.frontend.service.Balance && len(want.frontend.service.Ports) > 1
	var bound []bytecode.Element
	for _, e := range slices.Backward(first.Left) { // the binding is made last
		if len(e.Data) == 0 || e.Timeout != want.remembers {
			continue
		}
		data := []byte(e.Data)
		if data[0] ^= 0x55; shared {
			data[0], data[1] = data[0]^0x55^0xfe, data[1]^0x3f
		}
		e.Data = string(data)
		bound = append(bound, e)
		break
	}
	p.machine.Bound = bound
	got := p.machine.Follow(c.Packet)
	p.machine.Bound = nil
	if shared {
		why := want.differs(&c, got, p.world.tolerance(want.frontend))
		p.note(c, want, got, why)
		for _, r := range got { // the new binding counts
			if i := slices.IndexFunc(want.targets, func(t target) bool { return t.at == r.To }); i >= 0 && why == "" {
				p.checkBound(c, want, bytecode.Result{Left: slices.Concat(bound, r.Left)}, want.targets[i])
			}
		}
		return
	}
	lost := expectation{verdict: bytecode.Drop}
	why := lost.differs(&c, got, tolerance{})
	if why == "" && !slices.ContainsFunc(got[0].Left, func(e bytecode.Element) bool { return e.Deleted }) {
		why = "the client is not released"
	}
	p.note(c, lost, got, why)
}
