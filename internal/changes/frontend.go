package changes

import (
	"math"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
	"github.com/nftproxy/nftproxy/internal/words"
)

type serving = served.Frontend

// frontend says how a node serves a frontend, with the endpoints of connections from
// anywhere, sorted.
type frontend struct {
	*serving
	endpoints []endpoint
	// table is the size of the table of Maglev in slots. Objects say it also of a Service
	// with less than two endpoints, which needs none.
	table int
	in    words.Vocabulary
}

// endpoint is where connections go. The weight is from the object, or the number of slots
// in rules.
type endpoint struct {
	address netip.AddrPort
	weight  int
}

// pair is a frontend before and after a change; nil: not served.
type pair struct{ before, after *frontend }

func (p pair) bothKnow(facts served.Facts) bool {
	return (p.before.Unknown|p.after.Unknown)&facts == 0
}

// ofRoute returns the frontend of a route with the weights of its objects; nil: none.
func ofRoute(r *model.Route, of *model.Routing) *frontend {
	if r == nil {
		return nil
	}
	f := &frontend{serving: served.Of(r, of.Scheduler)}
	if f.Scheduler.IsMaglev() {
		f.table = r.Service.MaglevSize(len(r.Inside().Endpoints))
	}
	for _, e := range slices.Concat(r.Inside().Endpoints, r.Outside().Endpoints) {
		f.endpoints = append(f.endpoints, endpoint{e.Address(), e.HostWeight()})
	}
	f.endpoints = slices.Compact(sortEndpoints(f.endpoints))
	return f
}

// ofRules returns the frontend that a table serves, with weights from slots; nil: none.
func ofRules(t *served.Table, of model.Frontend) *frontend {
	s := t.Frontend(of)
	if s == nil {
		return nil
	}
	f := &frontend{serving: s, endpoints: weightsOf(s.Inside, s.Scheduler), table: s.TableSize()}
	for _, e := range weightsOf(s.Outside, s.Scheduler) {
		if s.Inside.Of(e.address) == 0 {
			f.endpoints = append(f.endpoints, e)
		}
	}
	f.endpoints = sortEndpoints(f.endpoints)
	return f
}

// weightsOf returns the endpoints of a decision, with the number of their slots. For Maglev,
// which takes all slots of a table, these are estimates: the numbers of all endpoints change
// when one of them comes or goes.
func weightsOf(d served.Decision, scheduler model.Scheduler) (out []endpoint) {
	least := math.MaxInt
	for _, e := range d.Endpoints {
		out = append(out, endpoint{e.Address, e.Slots})
		least = min(least, e.Slots)
	}
	if scheduler.IsMaglev() {
		for i := range out {
			e := &out[i]
			e.weight = max(1, (4*e.weight+2*least+1)/(4*least+2)) // of least or one more: 1
		}
	}
	return out
}

func sortEndpoints(endpoints []endpoint) []endpoint {
	slices.SortFunc(endpoints, func(a, b endpoint) int { return a.address.Compare(b.address) })
	return endpoints
}

type address = netip.AddrPort

// stateOf returns why an endpoint takes no new connections.
type stateOf func(model.PortName, address) state
