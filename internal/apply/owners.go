package apply

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
)

// unit is what is applied as a whole or not at all: everything about a Service
// or, where none is known to need it, everything about a frontend, an address or
// an endpoint.
type unit struct {
	service  model.ServiceName
	frontend model.Frontend
}

// owners knows which Service needs an element.
type owners struct {
	frontends map[model.Frontend]model.ServiceName
	endpoints map[model.Frontend]model.ServiceName
	// clusterIPs have the zero name if several Services share one.
	clusterIPs map[netip.Addr]model.ServiceName
}

// newOwners returns what routes tell. Of several about one frontend the first
// one counts.
func newOwners(routes []model.Route) *owners {
	o := &owners{
		frontends:  make(map[model.Frontend]model.ServiceName, len(routes)),
		endpoints:  make(map[model.Frontend]model.ServiceName),
		clusterIPs: make(map[netip.Addr]model.ServiceName),
	}
	for i := range routes {
		r := &routes[i]
		if _, known := o.frontends[r.Frontend]; !known {
			o.frontends[r.Frontend] = r.Port.Service
		}
		if r.Kind == model.ClusterIP {
			o.addClusterIP(r.Frontend.Address, r.Port.Service)
		}
		for _, d := range []model.Decision{r.Inside(), r.Outside()} {
			for _, e := range d.Endpoints {
				o.addEndpoint(r.Frontend.Protocol, e.Address, r.Port.Service)
			}
		}
	}
	return o
}

func (o *owners) addClusterIP(a netip.Addr, name model.ServiceName) {
	if known, ok := o.clusterIPs[a]; ok && known != name {
		name = model.ServiceName{}
	}
	o.clusterIPs[a] = name
}

func (o *owners) addEndpoint(p model.Protocol, a netip.AddrPort, name model.ServiceName) {
	f := model.Frontend{Address: a.Addr(), Protocol: p, Port: a.Port()}
	if _, known := o.endpoints[f]; !known {
		o.endpoints[f] = name
	}
}

// unitOf returns the unit of the element that changes.
func (o *owners) unitOf(c *Change) unit { return o.unit(c.Set, cmp.Or(c.New, c.Old).Key) }

// unit returns the unit of an element of a set.
func (o *owners) unit(s *render.Set, k render.Key) unit {
	f := k.Frontend()
	var name model.ServiceName
	switch {
	case s.Key[0] == render.Source: // endpoints that may dial themselves
		name = o.endpoints[f]
	case slices.Contains(s.Key, render.Port):
		name = o.frontends[f]
	case !s.Interval:
		name = o.clusterIPs[f.Address]
	}
	if name == (model.ServiceName{}) {
		return unit{frontend: f}
	}
	return unit{service: name}
}
