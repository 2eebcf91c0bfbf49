package model

import "slices"

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
func NewSelection(endpoints []Endpoint, node *Node, p Policy) *Selection {
	s := &Selection{node: node, policy: p}
	byNode, byZone := hints{here: node.Name}, hints{here: node.Zone}
	for _, e := range endpoints {
		if e.Host.Ready && s.excludesPlace(e.Host) == Chosen {
			s.anyReady = true
			byNode.add(e.Host.ForNodes)
			byZone.add(e.Host.ForZones)
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

func (h *hints) add(names []string) {
	h.missing = h.missing || len(names) == 0
	h.named = h.named || h.here != "" && slices.Contains(names, h.here)
}

func (h *hints) count() bool { return h.named && !h.missing }

// Excludes returns the reason why a host takes no new connections, or [Chosen]. If no
// host is ready, terminating ones that still serve take them (3.5). A host that is
// neither ready nor terminating never does (3.6).
func (s *Selection) Excludes(h *Host) Exclusion {
	if why := s.excludesPlace(h); why != Chosen {
		return why
	}
	switch {
	case h.Ready && s.byNode && !slices.Contains(h.ForNodes, s.node.Name):
		return ForOtherNode
	case h.Ready && s.byZone && !slices.Contains(h.ForZones, s.node.Zone):
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
func (s *Selection) excludesPlace(h *Host) Exclusion {
	switch {
	case h.Drain:
		return Drained
	case s.policy == PolicyCluster:
		return Chosen
	case h.Node == "":
		return NoNode
	case h.Node != s.node.Name:
		return OtherNode
	}
	return Chosen
}
