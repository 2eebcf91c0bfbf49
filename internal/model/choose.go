package model

// Choice holds the endpoints of one service port in one family that may take new
// connections, by traffic policy. It is immutable and shared by the routes of the
// service port, so its address identifies it.
type Choice struct {
	// Cluster is for policy Cluster: ready endpoints according to the topology
	// hints, else serving and terminating ones (3.4, 3.5).
	Cluster []Endpoint
	// Local is for policy Local: the same on this node, without hints (3.7).
	Local []Endpoint
	// Serving are the endpoints, on any node, that keep their connections when the
	// choice changes (9.4, 9.8).
	Serving []Endpoint
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

// Choose selects the usable endpoints of a service port for both policies, as seen
// from node (section 3).
func Choose(endpoints []Endpoint, node *Node) *Choice {
	chosen := func(p Policy) []Endpoint {
		s := NewSelection(endpoints, node, p)
		return filter(endpoints, func(h *Host) bool { return s.Excludes(h) == Chosen })
	}
	return &Choice{
		Cluster: chosen(PolicyCluster),
		Local:   chosen(PolicyLocal),
		Serving: filter(endpoints, func(h *Host) bool { return h.Serving }),
		Known:   len(endpoints),
	}
}

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

// filter returns the endpoints to keep; it does not copy if those are all.
func filter(endpoints []Endpoint, keep func(*Host) bool) []Endpoint {
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
	NotReady                      // and not terminating either
	NotServing                    // terminating, and no longer serving
	NotNeeded                     // terminating, and others are ready
)

// Selection decides which endpoints of a service port take new connections with one
// policy on one node.
type Selection struct {
	node           *Node
	policy         Policy
	anyReady       bool // among the endpoints that the policy allows
	byNode, byZone bool // which kind of topology hint counts
}

// NewSelection returns the selection from these endpoints. A kind of hint counts with
// policy Cluster only, if every ready endpoint has it and at least one names this
// node or its zone (3.10 to 3.13); node hints come first.
func NewSelection(endpoints []Endpoint, node *Node, p Policy) Selection {
	s := Selection{node: node, policy: p}
	byNode, byZone := hints{here: node.Name}, hints{here: node.Zone}
	for _, e := range endpoints {
		if e.Host.Ready && s.excludesPlace(e.Host) == Chosen {
			s.anyReady = true
			place := e.Host.Place.get()
			byNode.add(place.forNodes)
			byZone.add(place.forZones)
		}
	}
	s.byNode = p == PolicyCluster && byNode.count()
	s.byZone = p == PolicyCluster && byZone.count() && !s.byNode
	return s
}

// hints sums up the topology hints of one kind.
type hints struct {
	here           string // empty: unknown
	missing, named bool   // at an endpoint; here by an endpoint
}

func (h *hints) add(n names) {
	h.missing = h.missing || n == ""
	h.named = h.named || h.here != "" && n.has(h.here)
}

func (h *hints) count() bool { return h.named && !h.missing }

// Excludes returns the reason why a host takes no new connections, or [Chosen]. If no
// host is ready, terminating ones that still serve take them (3.5). A host that is
// neither ready nor terminating never does (3.6).
func (s Selection) Excludes(h *Host) Exclusion {
	if why := s.excludesPlace(h); why != Chosen {
		return why
	}
	switch {
	case h.Ready && s.byNode && !h.Place.get().forNodes.has(s.node.Name):
		return ForOtherNode
	case h.Ready && s.byZone && !h.Place.get().forZones.has(s.node.Zone):
		return ForOtherZone
	case h.Ready:
		return Chosen
	case !h.Terminating:
		return NotReady
	case !h.Serving:
		return NotServing
	case s.anyReady:
		return NotNeeded
	}
	return Chosen
}

// excludesPlace returns the reason to exclude a host regardless of its conditions.
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
