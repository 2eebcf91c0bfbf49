package model

import (
	"net/netip"
	"slices"
)

// HealthCheck is what a node tells load balancers about one Service on its
// health check node port.
type HealthCheck struct {
	Service ServiceName
	Port    uint16
	// Endpoints is the number of addresses of ready endpoints on this node, for
	// each family that the Service has (10.20).
	Endpoints map[Family]int
}

// healthCheck counts the local endpoints of a Service. Those that serve only
// while they terminate do not count, though they still get traffic: load
// balancers shall leave the node before they are gone.
func healthCheck(s *Service, all []*EndpointSlice, node *Node) HealthCheck {
	h := HealthCheck{s.Name, s.HealthCheckNodePort, make(map[Family]int)}
	for _, ip := range s.ClusterIPs {
		f := FamilyOf(ip)
		var local []netip.Addr
		for _, p := range s.Ports {
			for _, e := range Endpoints(PortName{s.Name, p.Name, p.Protocol}, f, all) {
				if e.Host.Ready && e.Host.Node != "" && e.Host.Node == node.Name {
					local = append(local, e.Address.Addr())
				}
			}
		}
		slices.SortFunc(local, netip.Addr.Compare)
		h.Endpoints[f] = len(slices.Compact(local))
	}
	return h
}

// WithoutLocal counts the service ports whose endpoints are all on other nodes
// although a traffic policy wants those of this node.
type WithoutLocal struct {
	Internal int // by internalTrafficPolicy
	External int // by externalTrafficPolicy
}

// withoutLocal looks at the routes of one Service. A service port has one
// route for its ClusterIP in each family.
func withoutLocal(routes []Route) map[Family]WithoutLocal {
	out := make(map[Family]WithoutLocal)
	for i := range routes {
		p := &routes[i]
		if p.Kind != ClusterIP || p.Choice.Decide(PolicyLocal).Verdict != Drop {
			continue
		}
		f := FamilyOf(p.Frontend.Address)
		n := out[f]
		if p.Service.InternalPolicy == PolicyLocal {
			n.Internal++
		}
		if p.Service.ExternalPolicy == PolicyLocal {
			n.External++
		}
		out[f] = n
	}
	return out
}
