package model

import "slices"

// Choice holds the endpoints of one service port in one family that may take
// new connections, by traffic policy. It is immutable, and the routes of the
// service port share one: what follows from it can be kept by its address.
type Choice struct {
	// Cluster serves policy Cluster: ready endpoints as the topology hints
	// allow, else serving and terminating ones (3.4, 3.5).
	Cluster []Endpoint
	// Local serves policy Local: the same of this node alone, hints ignored
	// (3.7).
	Local []Endpoint
	// Serving may keep the connections that they have, on any node: a client is
	// not moved off them because the choice changes (9.4, 9.8).
	Serving []Endpoint
}

// Verdict is the decision on a new connection.
type Verdict uint8

const (
	// Reject answers with port unreachable: no endpoint is usable anywhere.
	Reject Verdict = iota
	// Drop does not answer: endpoints exist, but none that the policy allows.
	Drop
	// Forward sends the connection to an endpoint.
	Forward
)

func (v Verdict) String() string {
	switch v {
	case Reject:
		return "reject"
	case Drop:
		return "drop"
	}
	return "forward"
}

// Decision is a verdict and, for Forward, the endpoints, of which there is at
// least one.
type Decision struct {
	Verdict   Verdict
	Endpoints []Endpoint
}

// Choose picks the usable ones of the endpoints of a service port as seen from
// node, for both policies (section 3).
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

// Decide applies a traffic policy to the choice. Whether anything exists
// anywhere (the flag "any" of 3.8) follows from the cluster set, which hints never
// leave empty.
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

// filter returns the endpoints to keep, without a copy if those are all.
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
