package model

import "net/netip"

// HealthCheck is the answer to load balancers on the health check node port of a
// Service.
type HealthCheck struct {
	Service ServiceName
	Port    uint16
	// Endpoints is the number of addresses of ready endpoints on this node that take
	// new connections, for each family of the Service (10.20).
	Endpoints map[Family]int
}

// healthCheck counts the ready endpoints on this node from the routes of a Service,
// which exclude drained ones (3.21). Terminating ones get traffic, but do not count:
// load balancers should leave the node before they are gone.
func healthCheck(s *Service, routes []Route) HealthCheck {
	h := HealthCheck{s.Name, s.HealthCheckNodePort, make(map[Family]int)}
	local := make(map[netip.Addr]struct{})
	for i := range routes {
		if routes[i].Kind != ClusterIP { // shares the choice of its service port
			continue
		}
		for _, e := range routes[i].Choice.Local {
			if e.Host.Ready {
				local[e.Address.Addr()] = struct{}{}
			}
		}
	}
	for _, ip := range s.ClusterIPs {
		h.Endpoints[FamilyOf(ip)] = 0
	}
	for a := range local {
		h.Endpoints[FamilyOf(a)]++
	}
	return h
}

// WithoutLocal counts the service ports with a Local traffic policy whose endpoints
// are all on other nodes.
type WithoutLocal struct {
	Internal int // by internalTrafficPolicy
	External int // by externalTrafficPolicy
}

// withoutLocal counts over the routes of one Service. A service port has one route
// for its ClusterIP in each family.
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
