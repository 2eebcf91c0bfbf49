package prove

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/model"
)

// expectation is what a packet must experience.
type expectation struct {
	verdict    bytecode.Verdict
	unchanged  bool // of Pass: the rules change nothing
	unserved   bool // no frontend serves the packet
	waits      bool // the packet is not refused, and reaches no endpoint
	mayRefuse  bool // it may be refused, too
	targets    []target
	some       bool // of the targets, with any shares
	redirected bool // to the relay
	// mayMasquerade is of redirected packets of this machine: rules of ranges may find them.
	mayMasquerade bool
	remembers     time.Duration
	frontend      *frontend
	scheduler     model.Scheduler // of several targets
	forwarded     bool            // with the priority of the type of service (4.46)
}

// target is an endpoint that the connection may reach.
type target struct {
	at         netip.AddrPort
	share      float64
	masquerade bool
	// mayMasquerade: it need not be as masquerade says.
	mayMasquerade bool
	from          []netip.Addr // the sources that it gets then; none: one of the outgoing interface
}

// hasSource reports whether a packet gets a source as it must.
func (t *target) hasSource(r *bytecode.Result) bool {
	if t.masquerade && len(t.from) > 0 {
		return !r.Masquerade && slices.Contains(t.from, r.From.Addr())
	}
	return (t.masquerade == r.Masquerade || t.mayMasquerade) && !r.From.IsValid()
}

// sources returns the addresses to masquerade from (8.7, 8.8).
func (w *World) sources(f *frontend, p *bytecode.Packet, to netip.AddrPort) []netip.Addr {
	all := f.extra().MasqueradeFrom
	other := func(a netip.Addr) bool { return familyOf(a) != familyOf(p.Destination) }
	if all = slices.DeleteFunc(slices.Clone(all), other); len(all) == 0 || f.ranged && p.Source == to.Addr() {
		all = slices.Clone(w.config.MasqueradeFrom)
		if first, known := w.primary(familyOf(p.Destination)); known && w.config.MasqueradePrimary {
			all = append(all, first)
		}
		all = slices.DeleteFunc(all, other)
	}
	return all
}

// expect derives what a packet must experience (section 4).
func (w *World) expect(p *bytecode.Packet) expectation {
	pass := expectation{unchanged: true}
	if p.Known == bytecode.Answer || !w.serves(familyOf(p.Destination)) { // 4.7
		return pass
	}
	if p.Destination.IsUnspecified() { // 6.6
		return expectation{waits: true, mayRefuse: true}
	}
	f := w.serving(at{address{p.Destination, model.Protocol(p.Protocol)}, p.Port})
	switch {
	case f == nil && model.Protocol(p.Protocol).IsEcho() && p.ICMPType == 0:
		out := w.expectPing(p)
		out.unserved = true
		return out
	case f == nil:
		out := w.expectUnserved(p)
		out.unserved = true
		return out
	case !w.admits(f, p.Source), p.Exceeds && w.limited(f):
		return expectation{verdict: bytecode.Drop}
	}
	set, verdict := w.decide(f, w.isOutside(p))
	switch {
	case verdict == bytecode.Reject:
		return refused(p)
	case verdict == bytecode.Drop:
		return expectation{verdict: verdict}
	case p.Known == bytecode.Older: // 9.42
		return expectation{waits: true}
	case f.extra().Relay != model.NoRelay && w.relaying[familyOf(p.Destination)] && !p.InVRF: // 4.96
		return expectation{verdict: bytecode.Pass, redirected: true, mayMasquerade: p.In == "" && w.hasRanges(p.Destination)}
	case f.extra().Relay != model.NoRelay: // 4.47
		return expectation{verdict: bytecode.Reset, redirected: true}
	}
	out := expectation{frontend: f, remembers: w.remembers(f), scheduler: w.scheduler(f)}
	out.forwarded = p.In != "" && p.Destination.Is4() && !p.Bridged && out.remembers == 0 && !w.hasRanges(p.Destination)
	for _, e := range set {
		to := f.endpointFor(e.at, p)
		out.targets = append(out.targets, target{at: to, share: e.weight, masquerade: w.masquerades(f, p, to), from: w.sources(f, p, to)})
	}
	return out
}

// endpointFor returns an endpoint with the port at which a packet reaches it (1.51).
func (f *frontend) endpointFor(e netip.AddrPort, p *bytecode.Packet) netip.AddrPort {
	if f.ranged && f.target == 0 {
		return netip.AddrPortFrom(e.Addr(), p.Port)
	}
	return e
}

// serves reports whether anything is served in a family.
func (w *World) serves(f model.Family) bool { return w.families[f] }

// serving returns the frontend that serves what a client dials; nil: none does (4.37, 1.55).
func (w *World) serving(dialled at) *frontend {
	if f := w.claims[dialled]; f != nil {
		return f
	}
	if w.wildcards && w.nodePorts[dialled.addr] && !w.clusterIPs[dialled.addr] {
		if f := w.claims[at{address{unspecified(familyOf(dialled.addr)), dialled.protocol}, dialled.port}]; f != nil {
			return f
		}
	}
	for _, f := range w.ranges[dialled.address] {
		if f.port <= dialled.port && dialled.port <= f.end() {
			return f
		}
	}
	return nil
}

// isOutside reports whether a packet comes from outside of the cluster (4.10).
func (w *World) isOutside(p *bytecode.Packet) bool { return p.In != "" && !w.isPod(p.Source, p.In) }

// decide returns the endpoints for a client, or why there are none (tables 4-A and 4-B).
func (w *World) decide(f *frontend, outside bool) (set, bytecode.Verdict) {
	if !f.usable() {
		return nil, bytecode.Reject
	}
	s := w.inside(f)
	if outside {
		s = w.outside(f)
	}
	if len(s) == 0 {
		return nil, bytecode.Drop
	}
	return s, bytecode.Pass
}

// inside returns the endpoints for pods and the node.
func (w *World) inside(f *frontend) set {
	if f.kind == model.ClusterIP && f.service.InternalPolicy == model.PolicyLocal {
		return f.local
	}
	return f.cluster
}

// outside returns the endpoints for clients outside of the cluster.
func (w *World) outside(f *frontend) set {
	if f.kind != model.ClusterIP && f.service.ExternalPolicy == model.PolicyLocal {
		return f.local
	}
	return w.inside(f)
}

// refused is how a packet is rejected (4.6).
func refused(p *bytecode.Packet) expectation {
	if model.Protocol(p.Protocol) == model.TCP {
		return expectation{verdict: bytecode.Reset}
	}
	return expectation{verdict: bytecode.Reject}
}

// masquerades reports whether a connection to an endpoint is masqueraded (section 8). The kernel
// masquerades what leaves through postrouting, and only connections that a rule has translated.
func (w *World) masquerades(f *frontend, p *bytecode.Packet, to netip.AddrPort) bool {
	switch {
	case to == netip.AddrPortFrom(p.Destination, p.Port):
		return false
	case p.In != "" && w.isLocal(to.Addr()):
		return false
	case p.Source == to.Addr() && w.isHairpin(f, p.Destination, to): // 4.19
		return true
	case f.service.ClientAddresses == model.MasqueradeClientAddresses: // 1.42
		return true
	case w.clusterIPs[p.Destination] && w.masqueradesClusterIP(p): // 4.29
		return true
	case f.kind == model.ClusterIP:
		return false
	case f.keepsClients():
		return w.isLocal(p.Source)
	}
	return true
}

// keepsClients reports whether clients outside of the cluster keep their addresses (4.15, 1.42).
func (f *frontend) keepsClients() bool {
	keeps := f.service.ExternalPolicy == model.PolicyLocal || f.service.ClientAddresses == model.KeepClientAddresses
	return keeps && f.kind != model.ClusterIP && f.service.ClientAddresses != model.MasqueradeClientAddresses
}

// settleHairpins finds the endpoints of this node, and those without a node (4.21). Several
// frontends may share one (4.22).
func (w *World) settleHairpins() {
	w.hairpins = make(map[at]bool)
	for _, f := range w.all {
		if f.extra().Relay != model.NoRelay {
			continue
		}
		for _, s := range []set{w.inside(f), w.outside(f)} {
			for _, e := range s {
				if e.host.Place.Node() == "" || w.isHere(e.host) {
					w.hairpins[f.hairpin(e.at)] = true
				}
			}
		}
	}
}

// isHairpin reports whether an endpoint is masqueraded that reaches itself through an address. If
// Services disagree about its node, one that says this node is enough: for the port, and where the
// address has ranges of ports, for the host, unless a frontend of one port keeps its clients.
func (w *World) isHairpin(f *frontend, dialled netip.Addr, to netip.AddrPort) bool {
	if w.hairpins[at{address{to.Addr(), f.protocol}, to.Port()}] {
		return true
	}
	return w.hasRanges(dialled) && (f.isRange() || !f.keepsClients()) && w.hairpins[at{address{to.Addr(), f.protocol}, 0}]
}

// hasRanges reports whether an address has ranges of ports.
func (w *World) hasRanges(a netip.Addr) bool {
	for _, p := range model.Protocols {
		if len(w.ranges[address{a, p}]) > 0 {
			return true
		}
	}
	return false
}

// hairpin returns what an endpoint is known by: of a range it is the whole host.
func (f *frontend) hairpin(e netip.AddrPort) at {
	if f.isRange() {
		return at{address{e.Addr(), f.protocol}, 0}
	}
	if f.ranged && f.target == 0 {
		return at{address{e.Addr(), f.protocol}, f.port}
	}
	return at{address{e.Addr(), f.protocol}, e.Port()}
}

// masqueradesClusterIP is for the first row of table 4-A, and 4.26 to 4.28.
func (w *World) masqueradesClusterIP(p *bytecode.Packet) bool {
	_, _, detects := w.detects(familyOf(p.Destination))
	return w.config.MasqueradeAll || detects && !w.isPod(p.Source, p.In)
}

// remembers returns for how long a client stays bound (5.3, 1.56); zero: it does not.
func (w *World) remembers(f *frontend) time.Duration {
	if f.isRange() || f.service.Balance && hasRange(f.service) {
		return 0
	}
	return f.service.AffinityTimeout
}

func hasRange(s *model.Service) bool {
	if s.Extras != nil {
		for _, p := range s.Extras.Ranges {
			if p.Last != 0 {
				return true
			}
		}
	}
	return false
}

// expectUnserved is for packets that no frontend serves (4.23 to 4.25, 4.71, 4.72).
func (w *World) expectUnserved(p *bytecode.Packet) expectation {
	a := p.Destination
	switch {
	case p.Known == bytecode.Older: // 9.42
		return expectation{unchanged: true}
	case w.clusterIPs[a]:
		return refused(p)
	case contains(w.snapshot.ServiceCIDRs, a) && !w.config.BesideAnother:
		return expectation{verdict: bytecode.Drop}
	case !contains(w.config.LoadBalancerCIDRs, a) || w.isLocal(a):
		return expectation{unchanged: true}
	case w.external[a]:
		return refused(p)
	case p.In != "" && !contains(w.config.Links, a):
		return expectation{verdict: bytecode.Drop}
	}
	return expectation{unchanged: true}
}

// expectPing is for echo requests (4.65 to 4.70).
func (w *World) expectPing(p *bytecode.Packet) expectation {
	f := w.pings[p.Destination]
	if f == nil || w.isLocal(p.Destination) || len(w.inside(f)) == 0 || !f.usable() {
		return w.expectUnserved(p)
	}
	if !w.admits(f, p.Source) || w.isOutside(p) && len(w.outside(f)) == 0 {
		return expectation{verdict: bytecode.Drop}
	}
	if p.Known == bytecode.Older {
		return expectation{unchanged: true}
	}
	to, _ := w.answersFrom(familyOf(p.Destination))
	return expectation{targets: []target{{at: netip.AddrPortFrom(to, 0), share: 1}}}
}
