package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// The slots in tables of the schedulers maglev and maglev-port have budgets (3.60), because
// each slot is an element for each frontend. Without them, a Service with 5 ports, 4 endpoints
// and tables of 131,071 slots took 0.6 GB of memory on every node, and a change of one of
// its endpoints 2 s of processor time (measured on 6.18).

// slotAsk is the request of a Service for tables of slots. It depends on the Service alone, neither on its
// endpoints nor on the node, and so do the sizes of tables: they are the same on all nodes.
// It is comparable; the zero value asks for nothing.
type slotAsk struct {
	created int64
	tables  int // that frontends can have
	size    int // slots of each
}

// slotAsk returns the request of a Service if the scheduler of the node is byDefault.
func (s *Service) slotAsk(byDefault Scheduler) slotAsk {
	tables := 0
	if cmp.Or(s.Scheduler, byDefault).IsMaglev() {
		tables = s.maglevTables()
	}
	if tables == 0 {
		return slotAsk{}
	}
	return slotAsk{s.Created, tables, s.MaglevSize(0)}
}

// maglevTables returns the most tables that the frontends of the Service have on a node:
// one for each, and another one for clients outside if those have other endpoints. Relays
// have none.
func (s *Service) maglevTables() (n int) {
	if s.Extra().Relay != NoRelay || s.hashesAll() {
		return 0
	}
	outside := 1
	if s.ExternalPolicy == PolicyLocal {
		outside = 2
	}
	ports := len(s.Ports) + count(s.Extra().Ranges, func(p PortRange) bool {
		return p.Last == 0 || s.AffinityTimeout == 0 // others have source-hash
	})
	for _, f := range Families {
		if !s.HasFamily(f) {
			continue
		}
		clusterIP, ok := s.ClusterIP(f)
		if ok {
			n += ports
		}
		n += outside * ports * count(s.externalAddresses(), func(a netip.Addr) bool { return FamilyOf(a) == f && a != clusterIP })
		if !s.NoClusterIP {
			n += outside * count(s.Ports, func(p ServicePort) bool { return p.NodePort != 0 })
		}
	}
	return n
}

func (s *Service) externalAddresses() []netip.Addr {
	all := slices.Clone(s.externalOrZero().LoadBalancerIPs)
	if !s.NoClusterIP {
		all = append(all, s.externalOrZero().ExternalIPs...)
	}
	return sortDistinct(all)
}

func count[E any](all []E, is func(E) bool) (n int) {
	for _, e := range all {
		if is(e) {
			n++
		}
	}
	return n
}

// largestFitting returns the largest size that is not larger than the one asked for and with which
// all tables fit into so many slots; zero: none.
func (a slotAsk) largestFitting(slots int) int {
	for _, size := range slices.Backward(MaglevSizes) {
		if n := int(size); n <= a.size && n*a.tables <= slots {
			return n
		}
	}
	return 0
}

func (a slotAsk) age() int64 { return a.created }
func (a slotAsk) alone() int { return a.largestFitting(budget.MaglevSlots) }
func (a slotAsk) cost() int  { return a.tables * a.alone() }

func (a slotAsk) fit(left int) (granted, cost int) {
	size := a.largestFitting(min(left, budget.MaglevSlots))
	return size, size * a.tables
}

// fitTables returns the Service with tables that fit into the budgets, and a notice if
// they are smaller than it asks for. Without room for the smallest tables it has
// source-hash, which takes a slot for each endpoint and sends a client to the same one on
// all nodes, too. asked is the Service with all its families.
func (r *Router) fitTables(s, asked *Service) (*Service, []Notice) {
	a := asked.slotAsk(r.base.config.Scheduler)
	if a == (slotAsk{}) {
		return s, nil
	}
	size := r.slots.shareOf(s.Name, a)
	if size == a.size {
		return s, nil
	}
	out, extras := *s, *s.Extra()
	extras.MaglevSize, out.Extras = uint32(size), &extras
	if size == 0 {
		out.Scheduler = SourceHash
	}
	return &out, []Notice{newNotice(s.Object(), ManySlots, "%s", a.explainSize(s, size))}
}

// explainSize says why tables have another size than the one asked for, and what to do.
func (a slotAsk) explainSize(s *Service, size int) string {
	limit, remedy := s.Words().Sprintf("the %d of a Service", budget.MaglevSlots), s.Words().Text("split the Service")
	if size < a.alone() {
		limit, remedy = s.Words().Sprintf("what older Services leave of %d", budget.MaglevSlotsNode), "ask for smaller tables in these"
	}
	effect := "the scheduler is source-hash"
	if size > 0 {
		effect, remedy = fmt.Sprintf("each has %d", size), s.askFor(size)+", or "+remedy
	}
	tables := fmt.Sprintf("%d tables of %d slots exceed", a.tables, a.size)
	if a.tables == 1 {
		tables = fmt.Sprintf("a table of %d slots exceeds", a.size)
	}
	return fmt.Sprintf("%s %s: %s; %s", tables, limit, effect, remedy)
}
