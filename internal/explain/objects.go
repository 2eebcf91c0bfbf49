package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// AddObjects adds what follows from the objects behind the rules: the service port,
// the endpoints that take no new connections, and the Services that claim the
// frontend too. routing is the result of [model.Resolve] for the snapshot.
func (r *Result) AddObjects(s *model.Snapshot, c model.Config, routing *model.Routing) {
	route := findRoute(routing, r.Packet.Frontend())
	if route == nil {
		return
	}
	r.Service, r.Kind, r.Frontend = route.PortName().String(), route.Kind.String(), route.Frontend
	if route.Frontend.IsRange() && route.Service.AffinityTimeout > 0 {
		r.Notes = append(r.Notes, "the Service has session affinity, but its ranges of ports use the scheduler source-hash instead")
	}
	r.AddSources(route.Service.SourceLists(route.Kind, model.FamilyOf(route.Frontend.Address)))
	node, _ := s.Node(c.NodeName)
	l := model.NewLocality(node, c)
	policy := route.InsidePolicy()
	if route.Local() && r.treatedAsOutside() {
		policy = model.PolicyLocal
	}
	name := route.Service.Name
	ss := slices.DeleteFunc(slices.Clone(s.Slices), func(e *model.EndpointSlice) bool {
		return e.Namespace != name.Namespace || e.Service != name.Name
	})
	family := model.FamilyOf(route.Frontend.Address)
	r.LeftOut = append(leftOut(route.Service, model.Endpoints(route.PortName(), family, ss), l.Node, policy), omissions(model.NotCandidates(route.PortName(), family, ss))...)
	r.Conflicts = losers(s, l, route)
	if len(ss) == 0 && route.Service.Balance {
		r.Notes = append(r.Notes, route.Service.Object().String()+" has no backends")
	} else if len(ss) == 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("no EndpointSlice has the label kubernetes.io/service-name: %s in namespace %s", name.Name, name.Namespace))
	}
}

// findRoute returns the route that serves a frontend, or nil.
func findRoute(routing *model.Routing, f model.Frontend) *model.Route {
	find := func(f model.Frontend) *model.Route {
		i, ok := slices.BinarySearchFunc(routing.Routes, f, func(r model.Route, f model.Frontend) int { return r.Frontend.Compare(f) })
		if !ok {
			return nil
		}
		return &routing.Routes[i]
	}
	own := find(f)
	if own == nil && routing.ServesNodePorts(f.Address) {
		own = find(f.OnNode())
	}
	if own != nil {
		return own
	}
	for i := range routing.Routes {
		if of := routing.Routes[i].Frontend; of.IsRange() && of.Contains(f) {
			return &routing.Routes[i]
		}
	}
	return nil
}

// losers returns the other claims of the frontend of a route, or of the NodePort
// with the unspecified address that it hides.
func losers(s *model.Snapshot, l *model.Locality, winner *model.Route) []Claim {
	var out []Claim
	hidden := winner.Frontend
	if slices.Contains(l.NodePortAddresses, hidden.Address) {
		hidden = hidden.OnNode()
	}
	for _, svc := range s.Services {
		for _, r := range model.RouteService(svc, nil, l) {
			if (r.Frontend == winner.Frontend || r.Frontend == hidden || r.Frontend.Overlaps(winner.Frontend)) && r.PortName() != winner.PortName() {
				out = append(out, Claim{r.PortName().String(), r.Kind.String()})
			}
		}
	}
	slices.SortFunc(out, func(a, b Claim) int { return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Kind, b.Kind)) })
	return slices.Compact(out)
}

// leftOut returns the endpoints of a port of a Service that take no new connections.
func leftOut(s *model.Service, endpoints []model.Endpoint, node *model.Node, policy model.Policy) []Omission {
	return omissions(model.LeftOut(s, endpoints, node, policy))
}

func omissions(all []model.Omission) []Omission {
	var out []Omission
	for _, o := range all {
		out = append(out, Omission{o.Endpoint, terminal.Printable(o.Reason)})
	}
	return out
}

// emptySlot is why a connection falls out of its lane.
const emptySlot = "the slot has no endpoint"

// AddSources names the list of clients because of which the source may not connect.
func (r *Result) AddSources(lists []model.SourceList) {
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		if o.Reason != nft.NotAdmitted && o.Reason != nft.IsDenied || !r.Packet.Source.IsValid() {
			continue
		}
		for _, l := range lists {
			if l.Denies == (o.Reason == nft.IsDenied) && l.Excludes(r.Packet.Source) {
				o.List = l.Field
				o.Reason += ": " + l.Field
				break
			}
		}
	}
}

// exact returns the name of a set, or of its counterpart for frontends with one port. The
// sets of a list of clients count as the set of the frontends that have the list.
func exact(set string) string {
	row := nft.RowOf(set)
	return cmp.Or(row.Decides, row.Name)
}

// reason returns why an outcome is not Forward. It depends on the last set in which
// the packet was found.
func reason(o *Outcome) string {
	if o.Reason != "" || o.Verdict == Forward {
		return o.Reason
	}
	if o.Stale {
		return "the endpoint to which the client was bound has left the Service; its next packet gets another one"
	}
	last, served := "", false
	for _, s := range o.Path {
		for _, set := range s.sets {
			if !nft.RowOf(set).Passing {
				last = exact(set)
				served = served || last == nft.ServicesMap
			}
		}
	}
	if last == nft.ClusterIPsSet && o.echo {
		return "this node does not answer, because no endpoint of the Service can take connections"
	}
	if last == nft.ClusterIPsSet && o.portless {
		return "a ClusterIP answers on the ports of its Service only, and this protocol has none"
	}
	if last == nft.ClusterIPsSet && served { // fell out of its lane
		return emptySlot
	}
	row := nft.RowOf(last)
	text := map[Disposition]string{Reject: row.Rejects, Drop: row.Drops}[o.Verdict]
	if fellOut := row.Contents == nft.Services || row.Contents == nft.LocalServices; o.Verdict == NotOurs && fellOut {
		text = emptySlot
	}
	if text != "" {
		return text
	}
	if o.Verdict == NotOurs {
		return "no rule matches"
	}
	return fmt.Sprintf("by the rule %q", o.Path[len(o.Path)-1].Rule)
}

// treatedAsOutside reports whether rules for clients outside of the cluster applied.
func (r *Result) treatedAsOutside() bool { return r.met(nft.LocalServicesMap) }

// Outside reports whether the client counts as one outside of the cluster.
func (r *Result) Outside() bool { return r.treatedAsOutside() }

// AddOmission adds an endpoint, with a port or without, that takes no new connections. It
// does nothing without a reason.
func (r *Result) AddOmission(endpoint, reason string) {
	at, err := netip.ParseAddrPort(endpoint)
	if err != nil {
		a, _ := netip.ParseAddr(endpoint)
		at = netip.AddrPortFrom(a, 0)
	}
	if reason != "" && at.Addr().IsValid() {
		r.LeftOut = append(r.LeftOut, Omission{at, terminal.Printable(reason)})
	}
}
