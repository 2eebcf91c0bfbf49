package model

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/words"
)

// Choice holds the endpoints of one service port in one family that may take new
// connections, by traffic policy. It is immutable and shared by the routes of the
// service port, so its address identifies it.
type Choice struct {
	// Cluster is for policy Cluster: ready endpoints according to the topology
	// hints, else serving and terminating ones (3.4, 3.5), of the first priority
	// that has one (3.23). Either all of them fail their health check, or none (3.22).
	Cluster []Endpoint
	// Local is for policy Local: the same on this node, without hints (3.7).
	Local []Endpoint
	// Serving are the endpoints, on any node, that keep their connections when the
	// choice changes (9.4, 9.8). Failing ones do not, unless their checks do not
	// count for policy Cluster, or they are drained and [ChoosePort] keeps them.
	Serving []Endpoint
	// Numbers are the numbers of all servers, if clients are bound to one for all ports; nil otherwise.
	Numbers map[netip.AddrPort]uint16
	// Known is the number of all endpoints, including those that take no connections.
	Known int
}

// Verdict is the decision on a new connection.
type Verdict uint8

const (
	Reject  Verdict = iota // answered with port unreachable: no endpoint is usable anywhere
	Drop                   // not answered: endpoints exist, but the policy allows none
	Forward                // to an endpoint
)

func (v Verdict) String() string { return [...]string{"reject", "drop", "forward"}[v] }

// Decision is a verdict and, for Forward, at least one endpoint.
type Decision struct {
	Verdict   Verdict
	Endpoints []Endpoint
}

// Choose selects the usable endpoints of a port of a Service for both policies, as
// seen from node (section 3).
func Choose(s *Service, endpoints []Endpoint, node *Node) *Choice {
	cluster := NewSelection(s, endpoints, node, PolicyCluster)
	local := NewSelection(s, endpoints, node, PolicyLocal)
	c := &Choice{
		Cluster: cluster.setZoneShares(filterEndpoints(endpoints, func(h *Host) bool { return cluster.Excludes(h) == Chosen })),
		Local:   filterEndpoints(endpoints, func(h *Host) bool { return local.Excludes(h) == Chosen }),
		Serving: filterEndpoints(endpoints, func(h *Host) bool { return h.Serving && !cluster.failsCheck(h) }),
		Numbers: s.numberServers(endpoints),
		Known:   len(endpoints),
	}
	s.Extra().setParts(&c.Cluster, &c.Local)
	return c
}

// ChoosePort is [Choose] for a port of a protocol: if the Service closes established TCP
// connections to endpoints that fail, drained ones keep theirs, because draining lets them end.
func ChoosePort(s *Service, p Protocol, endpoints []Endpoint, node *Node) *Choice {
	c := Choose(s, endpoints, node)
	if p == TCP && s.Check != nil && s.Extra().OnFailure == CloseOnFailure {
		cluster := NewSelection(s, endpoints, node, PolicyCluster)
		c.Serving = filterEndpoints(endpoints, func(h *Host) bool { return h.Serving && (h.Drain || !cluster.failsCheck(h)) })
	}
	return c
}

func allFailing(chosen []Endpoint) bool { return len(chosen) > 0 && chosen[0].Host.Failing }

// Decide applies a traffic policy to the choice. The flag "any" of 3.8 follows from
// Cluster, which hints never leave empty.
func (c *Choice) Decide(p Policy) Decision {
	switch {
	case len(c.Cluster) == 0:
		return Decision{Verdict: Reject}
	case p == PolicyCluster:
		return Decision{Verdict: Forward, Endpoints: c.Cluster}
	case len(c.Local) == 0:
		return Decision{Verdict: Drop}
	}
	return Decision{Verdict: Forward, Endpoints: c.Local}
}

// filterEndpoints returns the endpoints to keep; it does not copy if those are all.
func filterEndpoints(endpoints []Endpoint, keep func(*Host) bool) []Endpoint {
	n := 0
	for _, e := range endpoints {
		if keep(e.Host) {
			n++
		}
	}
	switch n {
	case len(endpoints):
		return endpoints
	case 0:
		return nil
	}
	out := make([]Endpoint, 0, n)
	for _, e := range endpoints {
		if keep(e.Host) {
			out = append(out, e)
		}
	}
	return out
}

// Exclusion is the reason why an endpoint takes no new connections.
type Exclusion uint8

const (
	Chosen       Exclusion = iota // there is none: it takes connections
	Drained                       // its weight is 0
	NoNode                        // policy Local, and its node is unknown
	OtherNode                     // policy Local, and it is on another node
	ForOtherNode                  // its topology hints name other nodes only
	ForOtherZone                  // its topology hints name other zones only
	InOtherZone                   // and the zone of the node has enough endpoints
	NotReady                      // and not terminating either
	NotServing                    // terminating, and no longer serving
	Failing                       // its health check fails
	NotNeeded                     // terminating, and others are ready
	StandsBy                      // others have an earlier priority
)

// Selection decides which endpoints of a service port take new connections with one
// policy on one node.
type Selection struct {
	node           *Node
	policy         Policy
	checked        bool  // health checks count
	ready          bool  // only ready endpoints count: there is one
	priority       uint8 // of the endpoints that count
	byNode, byZone bool  // which kind of topology hint counts
	zone           *ZoneRule
	words          words.Vocabulary // for the Service
}

// NewSelection returns the selection from these endpoints of a port of a Service. Those
// that fail their health check count only if otherwise there would be none at all, and
// the check does not want to reject then (3.22). After that, only the first priority counts that has an endpoint (3.23). A kind of
// hint counts with policy Cluster only, if every ready endpoint that is left has it and
// at least one names this node or its zone (3.10 to 3.13); node hints come first. Then a
// zone floor may decide how many connections stay in the zone (3.61).
func NewSelection(s *Service, endpoints []Endpoint, node *Node, p Policy) Selection {
	out := Selection{node: node, policy: p, checked: true, words: s.Words()}
	if reject := s.Check != nil && s.Check.AllFailing == RejectAll; !out.settleCondition(endpoints) && !reject {
		out.checked = false
		out.settleCondition(endpoints)
	}
	if p == PolicyCluster && out.ready {
		out.chooseHint(endpoints)
	}
	if floor := s.Extra().ZoneFloor; floor > 0 {
		out.zone = newZoneRule(floor, &out, endpoints)
	}
	return out
}

// chooseHint decides which kind of topology hint counts.
func (s *Selection) chooseHint(endpoints []Endpoint) {
	byNode, byZone := hints{here: s.node.Name}, hints{here: s.node.Zone}
	for _, e := range endpoints {
		if s.excludesHost(e.Host) == Chosen {
			place := e.Host.Place.get()
			byNode.add(place.forNodes)
			byZone.add(place.forZones)
		}
	}
	s.byNode = byNode.count()
	s.byZone = byZone.count() && !s.byNode
}

// settleCondition decides which condition and priority endpoints need, and reports whether any
// has them.
func (s *Selection) settleCondition(endpoints []Endpoint) (found bool) {
	for _, e := range endpoints {
		h := e.Host
		if s.excludesPlace(h) != Chosen || s.excludesState(h) != Chosen {
			continue
		}
		if better := h.Ready && !s.ready; better || !found || h.Priority < s.priority {
			s.ready, s.priority = h.Ready, h.Priority
		}
		found = true
	}
	return found
}

// hints sums up the topology hints of one kind.
type hints struct {
	here           string // empty: unknown
	missing, named bool   // at an endpoint; here by an endpoint
}

func (h *hints) add(n names) {
	h.missing = h.missing || n == ""
	h.named = h.named || h.here != "" && n.hasName(h.here)
}

func (h *hints) count() bool { return h.named && !h.missing }

// Excludes returns the reason why a host takes no new connections, or [Chosen]. If no
// host is ready, terminating ones that still serve take them (3.5). A host that is
// neither ready nor terminating never does (3.6).
func (s Selection) Excludes(h *Host) Exclusion {
	if why := s.excludesHost(h); why != Chosen {
		return why
	}
	switch {
	case s.byNode && !h.Place.get().forNodes.hasName(s.node.Name):
		return ForOtherNode
	case s.zone.Counts() && (s.zone.Spills() || s.inZone(h)):
		return Chosen
	case s.zone.Counts() && !s.zone.byHints:
		return InOtherZone
	case s.byZone && !h.Place.get().forZones.hasName(s.node.Zone):
		return ForOtherZone
	}
	return Chosen
}

func (s Selection) excludesHost(h *Host) Exclusion {
	why := s.excludesPlace(h)
	if why == Chosen {
		why = s.excludesState(h)
	}
	if why == Chosen && h.Priority > s.priority {
		return StandsBy
	}
	return why
}

func (s Selection) excludesPlace(h *Host) Exclusion {
	switch {
	case h.Drain:
		return Drained
	case s.policy == PolicyCluster:
		return Chosen
	}
	switch h.Place.Node() {
	case "":
		return NoNode
	case s.node.Name:
		return Chosen
	}
	return OtherNode
}

func (s Selection) excludesState(h *Host) Exclusion {
	switch {
	case !h.Ready && !h.Terminating:
		return NotReady
	case !h.Ready && !h.Serving:
		return NotServing
	case s.failsCheck(h):
		return Failing
	case !h.Ready && s.ready:
		return NotNeeded
	}
	return Chosen
}

func (s Selection) failsCheck(h *Host) bool { return h.Failing && s.checked }
