package model

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// request is what a Service asks of a budget: things of a size each, or of a smaller one. It depends on
// the Service alone, neither on its endpoints nor on the node, so that all nodes agree. It is
// comparable; the zero value asks for nothing.
type request struct {
	created int64
	n       int
	size    int // one of [MaglevSizes], or 1
}

// largestFitting returns the largest size that is not larger than the one asked for and with which
// all things fit into a part of a budget; zero: none.
func (r request) largestFitting(left int) int {
	sizes := MaglevSizes
	if r.size == 1 {
		sizes = []uint32{1}
	}
	for _, size := range slices.Backward(sizes) {
		if n := int(size); n <= r.size && n*r.n <= left {
			return n
		}
	}
	return 0
}

// alone returns the size that the Service gets if there are no others, and cost what that takes.
func (r request) alone() int { return r.largestFitting(budget.MaglevSlots) }
func (r request) cost() int  { return r.n * r.alone() }

// allotment is the parts of a budget that Services get. The oldest Services get what they ask for.
type allotment struct {
	budget  int
	asking  map[ServiceName]request
	total   int                 // cost, if each Service were alone
	reduced map[ServiceName]int // sizes that Services get that get less than they got alone
	stale   bool
}

func newAllotment(budget int) allotment {
	return allotment{budget: budget, asking: make(map[ServiceName]request)}
}

func (b *allotment) setRequest(name ServiceName, r request) {
	before := b.asking[name]
	if r == before {
		return
	}
	b.total += r.cost() - before.cost()
	if b.asking[name] = r; r == (request{}) {
		delete(b.asking, name)
	}
	b.stale = b.stale || b.total > b.budget || len(b.reduced) > 0
}

// shareOf returns the size that a Service with a request gets.
func (b *allotment) shareOf(name ServiceName, r request) int {
	if n, ok := b.reduced[name]; ok {
		return n
	}
	return r.alone()
}

func (b *allotment) divide() (changed []ServiceName) {
	if !b.stale {
		return nil
	}
	before := b.reduced
	b.reduced, b.stale = b.chooseReduced(), false
	for name := range b.asking {
		was, had := before[name]
		is, has := b.reduced[name]
		if was != is || had != has {
			changed = append(changed, name)
		}
	}
	return changed
}

func (b *allotment) chooseReduced() map[ServiceName]int {
	if b.total <= b.budget {
		return nil
	}
	all := slices.SortedFunc(maps.Keys(b.asking), func(x, y ServiceName) int {
		return cmp.Or(compareAge(b.asking[x].created, b.asking[y].created), x.Compare(y))
	})
	reduced, left := make(map[ServiceName]int), b.budget
	for _, name := range all {
		r := b.asking[name]
		size := r.largestFitting(min(left, budget.MaglevSlots))
		if left -= r.n * size; size < r.alone() {
			reduced[name] = size
		}
	}
	return reduced
}

func (r *Router) askBudgets(name ServiceName, s *Service) {
	var limits, slots request
	if s != nil {
		limits, slots = s.askForLimits(), s.askForSlots(r.base.config.Scheduler)
	}
	r.clientLimits.setRequest(name, limits)
	r.slots.setRequest(name, slots)
}

// settleBudgets decides again about Services that get another share after changes.
func (r *Router) settleBudgets(touched map[Frontend]*Route) {
	for _, divide := range [...]func() []ServiceName{r.clientLimits.divide, r.slots.divide} {
		for _, name := range divide() {
			r.set(r.decideAgain(name), touched)
		}
	}
}

// askForLimits returns the request for limits per client, which have a budget (4.94). In the kernel
// each limit is a chain and a set, which the kernel walks to find one by its name, and elements with
// verdicts, which it visits when another one is added. A Service gets all of its limits, or none.
func (s *Service) askForLimits() request {
	n := 0
	if s.Extra().Limits.ConnectionsPerClient > 0 {
		n++
	}
	if s.Extra().Limits.RatePerClient.Amount > 0 {
		n++
	}
	if n == 0 {
		return request{}
	}
	return request{s.Created, n, 1}
}

func (s *Service) withoutClientLimits() (*Service, []Notice) {
	out := s.changeExtras(func(x *Extras) { x.Limits.ConnectionsPerClient, x.Limits.RatePerClient = 0, Rate{} })
	return out, []Notice{newNotice(s.Object(), ManyLimits,
		"limits per client do not apply: older Services have %d of them", budget.ClientLimits)}
}

// The slots in tables of the schedulers maglev and maglev-port have budgets (3.60), because
// each slot is an element for each frontend. Without them, a Service with 5 ports, 4 endpoints
// and tables of 131,071 slots took 0.6 GB of memory on every node, and a change of one of
// its endpoints 2 s of processor time (measured on 6.18).

// askForSlots returns the request for tables of slots, as many as frontends can have.
func (s *Service) askForSlots(byDefault Scheduler) request {
	tables := 0
	if cmp.Or(s.Scheduler, byDefault).IsMaglev() {
		tables = s.maglevTables()
	}
	if tables == 0 {
		return request{}
	}
	return request{s.Created, tables, s.MaglevSize(0)}
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

// fitTables returns the Service with tables that fit into the budgets, and a notice if
// they are smaller than it asks for. Without room for the smallest tables it has
// source-hash, which takes a slot for each endpoint and sends a client to the same one on
// all nodes, too. asked is the Service with all its families.
func (r *Router) fitTables(s, asked *Service) (*Service, []Notice) {
	a := asked.askForSlots(r.base.config.Scheduler)
	if a == (request{}) {
		return s, nil
	}
	size := r.slots.shareOf(s.Name, a)
	if size == a.size {
		return s, nil
	}
	out := s.changeExtras(func(x *Extras) { x.MaglevSize = uint32(size) })
	if size == 0 {
		out.Scheduler = SourceHash
	}
	return out, []Notice{newNotice(s.Object(), ManySlots, "%s", a.explainSize(s, size))}
}

func (r request) explainSize(s *Service, size int) string {
	limit, remedy := s.Words().Sprintf("the %d of a Service", budget.MaglevSlots), s.Words().Text("split the Service")
	if size < r.alone() {
		limit, remedy = s.Words().Sprintf("what older Services leave of %d", budget.MaglevSlotsNode), "ask for smaller tables in these"
	}
	effect := "the scheduler is source-hash"
	if size > 0 {
		effect, remedy = fmt.Sprintf("each has %d", size), s.askFor(size)+", or "+remedy
	}
	tables := fmt.Sprintf("%d tables of %d slots exceed", r.n, r.size)
	if r.n == 1 {
		tables = fmt.Sprintf("a table of %d slots exceeds", r.size)
	}
	return fmt.Sprintf("%s %s: %s; %s", tables, limit, effect, remedy)
}
