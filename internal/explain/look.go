package explain

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Background is what the objects tell about a frontend beyond the rules.
type Background struct {
	Route *model.Route // nil: no Service has the frontend
	// Policy is the one by which the endpoints for this packet are chosen.
	Policy  model.Policy
	LeftOut []Omission
	Losers  []Claim
}

// Claim is a service port that asks for the frontend and does not get it.
type Claim struct {
	Port model.PortName
	Kind model.Kind
}

// Look finds the background of a result. routing is what [model.Resolve] makes
// of the snapshot.
func Look(s *model.Snapshot, c model.Config, routing *model.Routing, r *Result) *Background {
	b := &Background{}
	f := r.Packet.Frontend()
	if b.Route = route(routing, f); b.Route == nil {
		return b
	}
	node, _ := s.Node(c.NodeName)
	l := model.NewLocality(node, c)
	b.Policy = b.policy(r)
	ss := slicesOf(s, b.Route.Service.Name)
	family := model.FamilyOf(f.Address)
	b.LeftOut = append(leftOut(model.Endpoints(b.Route.Port, family, ss), l.Node, b.Policy), elsewhere(b.Route.Port, family, ss)...)
	b.Losers = losers(s, l, b.Route)
	return b
}

// route returns the route of a frontend, or nil.
func route(routing *model.Routing, f model.Frontend) *model.Route {
	find := func(f model.Frontend) *model.Route {
		i, ok := slices.BinarySearchFunc(routing.Routes, f, func(r model.Route, f model.Frontend) int { return r.Frontend.Compare(f) })
		if !ok {
			return nil
		}
		return &routing.Routes[i]
	}
	if own := find(f); own != nil || !routing.ServesNodePorts(f.Address) {
		return own
	}
	return find(f.OnNode())
}

func (b *Background) policy(r *Result) model.Policy {
	switch {
	case b.Route.Kind == model.ClusterIP:
		return b.Route.Service.InternalPolicy
	case b.Route.Local() && r.treatedAsOutside():
		return model.PolicyLocal
	}
	return model.PolicyCluster
}

func slicesOf(s *model.Snapshot, name model.ServiceName) []*model.EndpointSlice {
	var out []*model.EndpointSlice
	for _, slice := range s.Slices {
		if slice.Namespace == name.Namespace && slice.Service == name.Name {
			out = append(out, slice)
		}
	}
	return out
}

// losers returns who else asks for the frontend of a route, or for a NodePort on
// all addresses that it hides.
func losers(s *model.Snapshot, l *model.Locality, winner *model.Route) []Claim {
	var out []Claim
	hidden := winner.Frontend
	if slices.Contains(l.NodePortAddresses, hidden.Address) {
		hidden = hidden.OnNode()
	}
	for _, svc := range s.Services {
		for _, r := range model.RouteService(svc, nil, l) {
			if (r.Frontend == winner.Frontend || r.Frontend == hidden) && r.Port != winner.Port {
				out = append(out, Claim{r.Port, r.Kind})
			}
		}
	}
	slices.SortFunc(out, func(a, b Claim) int { return a.Port.Compare(b.Port) })
	return slices.Compact(out)
}

// LocalAddresses returns the addresses of the node as far as the objects and
// the configuration tell, the one that it uses itself first in each family.
func LocalAddresses(s *model.Snapshot, c model.Config) []netip.Addr {
	node, _ := s.Node(c.NodeName)
	return slices.Concat(model.NewLocality(node, c).Node.Addresses, c.InterfaceAddresses)
}

// SentBy returns the packet as the node itself sends it: from the address
// that is dialled if that is its own, else from its first one of the family.
func (p Packet) SentBy(local []netip.Addr) Packet {
	p.FromNode = true
	family := model.FamilyOf(p.Destination)
	switch i := slices.IndexFunc(local, func(a netip.Addr) bool { return model.FamilyOf(a) == family }); {
	case p.Destination.IsLoopback() || slices.Contains(local, p.Destination):
		p.Source = p.Destination
	case i >= 0:
		p.Source = local[i]
	}
	return p
}
