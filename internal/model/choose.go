package model

import "slices"

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
	if !slices.ContainsFunc(endpoints, func(e Endpoint) bool { return !keep(e.Host) }) {
		return endpoints
	}
	var out []Endpoint
	for _, e := range endpoints {
		if keep(e.Host) {
			out = append(out, e)
		}
	}
	return out
}
