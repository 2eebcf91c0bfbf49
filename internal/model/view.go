package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/words"
)

// View is the state of one Service in a router. Its values are shared and must not be
// changed.
type View struct {
	Service *Service // with the tables of the scheduler maglev that it gets
	Slices  []*EndpointSlice
	Node    *Node         // this node, as the routes see it
	Claims  []ViewedClaim // sorted by service port, kind and frontend
	Notices []Notice      // about the Service
	Loops   []Loop        // endpoints that are frontends of this machine
	Health  *HealthCheck  // nil: none
	Echoes  []ViewedEcho  // sorted by address; none unless echo requests are answered
	// Scheduler is the one of the Service, or else the configured one.
	Scheduler Scheduler
	// Checks has the results of health checks. It is nil, unless the caller sets it: a router does
	// not know results.
	Checks CheckResults
}

// CheckResults returns the result of the health check of an address of a Service.
type CheckResults interface {
	Result(ServiceName, netip.Addr) (CheckResult, bool)
}

// CheckResult returns the result of the health check of an address; false: it is not known.
func (v *View) CheckResult(a netip.Addr) (r CheckResult, ok bool) {
	if v.Checks == nil {
		return r, false
	}
	return v.Checks.Result(v.Service.Name, a)
}

// Reason returns why a host takes no new connections, with the result of its health check
// if that is the reason; empty: it does.
func (v *View) Reason(s Selection, h *Host) string {
	why := s.Reason(h)
	if s.Excludes(h) != Failing {
		return why
	}
	if r, ok := v.CheckResult(h.Address); ok && !r.Healthy {
		why += ": " + r.String()
	}
	return why
}

// ViewedClaim is a frontend that a Service asks for.
type ViewedClaim struct {
	Route  *Route
	Winner *Route   // the service port that has it instead; nil: the Service has it
	Losers []*Route // other service ports that ask for it
	Behind Frontend // that the listener on localhost connects to; the zero value: none
}

// View returns the state of a Service, or nil if there is none. The cost depends on the Service and
// on the notices, not on other Services.
func (r *Router) View(name ServiceName) *View {
	s, ok := r.services[name]
	if !ok {
		return nil
	}
	service, _ := r.fitTables(s.state.Service, s.state.Service)
	v := &View{Service: service, Slices: s.state.Slices, Node: r.base.locality.Node,
		Scheduler: cmp.Or(service.Scheduler, r.base.config.Scheduler, RoundRobin)}
	for i := range s.routes {
		v.Claims = append(v.Claims, r.viewClaim(&s.routes[i]))
	}
	slices.SortFunc(v.Claims, func(a, b ViewedClaim) int {
		return cmp.Or(a.Route.PortName().Compare(b.Route.PortName()), cmp.Compare(a.Route.Kind, b.Route.Kind), a.Route.Frontend.Compare(b.Route.Frontend))
	})
	for _, n := range r.reports.notices {
		if n.Object == v.Service.Object() {
			v.Notices = append(v.Notices, n)
		}
	}
	if h, ok := r.health[name]; ok {
		v.Health = &h
	}
	v.Echoes, v.Loops = r.viewEchoes(s), r.Loops(name)
	return v
}

func (r *frontends) viewClaim(route *Route) ViewedClaim {
	c := ViewedClaim{Route: route}
	if route.Frontend.IsRange() {
		c.Winner, c.Losers = r.ranges.rivalsOf(route)
		return c
	}
	winner := r.Serves(route.Frontend)
	if winner.PortName() != route.PortName() {
		c.Winner = winner
		return c
	}
	for loser := range r.losers[route.Frontend].eachRoute {
		if loser.PortName() != route.PortName() {
			c.Losers = append(c.Losers, loser)
		}
	}
	if route.Frontend.OnLocalhost() {
		c.Behind, _ = r.BehindLocalhost(route.Frontend)
	}
	return c
}

// Rivals calls yield with the claims of other service ports that lost to the route of a frontend,
// also if one of both is a NodePort with the unspecified address.
func (r *frontends) Rivals(f Frontend, route *Route, yield func(*Route)) {
	each := func(o *Route) bool {
		if o.PortName() != route.PortName() {
			yield(o)
		}
		return true
	}
	r.losersOf(route.Frontend)(each)
	for _, other := range [...]Frontend{f, f.OnNode()} {
		if other != route.Frontend && r.onNode(f.Address) && r.winners[other] != nil {
			each(r.winners[other])
			r.losersOf(other)(each)
		}
	}
}

func (r *registry) IsBalance(name ServiceName) bool {
	s, ok := r.services[name]
	return ok && s.state.Service.Balance
}

// Words are the words for all Services together.
func (r *registry) Words() words.Vocabulary { return words.Among(len(r.services), r.balances) }

// Named returns the Services of a name in a namespace, or in all if that is empty. The cost depends
// on the number of namespaces only.
func (r *registry) Named(namespace, name string) (out []ServiceName) {
	if namespace != "" {
		if n := (ServiceName{namespace, name}); r.services[n] != nil {
			out = append(out, n)
		}
		return out
	}
	for namespace := range r.namespaces {
		if n := (ServiceName{namespace, name}); r.services[n] != nil {
			out = append(out, n)
		}
	}
	return out
}

// Names returns the names of all Services, in no order.
func (r *registry) Names() []ServiceName {
	out := make([]ServiceName, 0, len(r.services))
	for name := range r.services {
		out = append(out, name)
	}
	return out
}

// Omission is an endpoint that takes no new connections, and why.
type Omission struct {
	Endpoint netip.AddrPort // port 0: it has no port for the service port
	Reason   string
}

// LeftOut returns the endpoints of a port of a Service that a policy leaves out on a node.
func LeftOut(s *Service, endpoints []Endpoint, node *Node, policy Policy) []Omission {
	selection := NewSelection(s, endpoints, node, policy)
	var out []Omission
	for _, e := range endpoints {
		if why := selection.Reason(e.Host); why != "" {
			out = append(out, Omission{e.Address(), why})
		}
	}
	return out
}

// Reason returns why a host takes no new connections, for people; empty: it does.
func (s Selection) Reason(h *Host) string {
	why := s.Excludes(h)
	switch why {
	case Drained:
		if h.DrainedByOperator() {
			return "drained by nftproxy drain"
		}
		return "its weight is 0"
	case OtherNode:
		return "policy Local, and it is on node " + h.Place.Node()
	case ForOtherNode:
		return fmt.Sprintf("its topology hints are for node %s, this is %s", strings.Join(h.Place.ForNodes(), ", "), s.node.Name)
	case ForOtherZone:
		return fmt.Sprintf("its topology hints are for zone %s, this is %s", strings.Join(h.Place.ForZones(), ", "), s.node.Zone)
	case InOtherZone:
		if zone := h.Place.Zone(); zone != "" {
			return fmt.Sprintf("in zone %s; %s", zone, s.zone)
		}
		return fmt.Sprintf("in no zone; %s", s.zone)
	case StandsBy:
		return s.words.Sprintf("stands by: endpoints of priority %d are usable", s.priority)
	}
	return map[Exclusion]string{
		NoNode:     "policy Local, and its node is not known",
		NotReady:   "not ready",
		NotServing: "terminating, and no longer serving",
		Failing:    "its health check fails",
		NotNeeded:  "terminating, and others are ready",
	}[why]
}

// NotCandidates returns the entries of the slices of a Service that are not endpoints of
// a service port in a family, with the reason: endpoints of the other family, further
// records of an address, and hosts without the port.
func NotCandidates(port PortName, f Family, ss []*EndpointSlice) []Omission {
	records := make(map[netip.AddrPort]int)
	served := make(map[netip.Addr]bool)
	for _, s := range ss {
		for _, p := range s.Ports {
			for i := range s.Hosts {
				if p.Name == port.Port && p.Protocol == port.Protocol {
					records[netip.AddrPortFrom(s.Hosts[i].Address, p.Port)]++
					served[s.Hosts[i].Address] = true
				}
			}
		}
	}
	var other, more []Omission
	for _, of := range Families {
		for _, e := range Endpoints(port, of, ss) {
			if n := records[e.Address()]; of != f {
				other = append(other, Omission{e.Address(), fmt.Sprintf("%s, and the frontend is %s", of, f)})
			} else if n > 1 {
				more = append(more, Omission{e.Address(), fmt.Sprintf("%d of %d records of it: the best one counts", n-1, n)})
			}
		}
	}
	if port.OfRange() { // has every host
		return other
	}
	return slices.Concat(other, more, withoutPort(port, f, ss, served))
}

func withoutPort(port PortName, f Family, ss []*EndpointSlice, served map[netip.Addr]bool) []Omission {
	var out []Omission
	for _, s := range ss {
		for i := range s.Hosts {
			if a := s.Hosts[i].Address; s.Family == f && !served[a] {
				served[a] = true
				out = append(out, Omission{netip.AddrPortFrom(a, 0), s.describeLack(port)})
			}
		}
	}
	slices.SortFunc(out, func(a, b Omission) int { return a.Endpoint.Compare(b.Endpoint) })
	return out
}

func (s *EndpointSlice) describeLack(port PortName) string {
	has := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		has[i] = portLabel(p.Name, p.Protocol)
	}
	if len(has) == 0 {
		has = []string{"none"}
	}
	return fmt.Sprintf("EndpointSlice %s has no port %s; its ports: %s", s.Name, portLabel(port.Port, port.Protocol), strings.Join(has, ", "))
}

func portLabel(name string, p Protocol) string {
	return fmt.Sprintf("%q (%s)", name, strings.ToUpper(p.String()))
}
