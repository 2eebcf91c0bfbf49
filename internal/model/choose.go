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
	// Serving are those that may keep the connections they have, wherever they
	// are: to leave them is no reason to leave these alone (9.4, 9.8).
	Serving []Endpoint
}

// Verdict is what becomes of a new connection.
type Verdict uint8

const (
	// Reject answers with port unreachable: nobody serves this anywhere.
	Reject Verdict = iota
	// Drop stays silent: endpoints exist, but not where the policy looks.
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
	serving := filter(endpoints, func(h *Host) bool { return h.Serving })
	endpoints = filter(endpoints, func(h *Host) bool { return !h.Drain })
	local := filter(endpoints, func(h *Host) bool { return h.Node != "" && h.Node == node.Name })
	c := &Choice{
		Cluster: filter(filter(endpoints, isReady), topology(endpoints, node)),
		Local:   filter(local, isReady),
		Serving: serving,
	}
	if len(c.Cluster) == 0 {
		c.Cluster = filter(endpoints, isFallback)
	}
	if len(c.Local) == 0 {
		c.Local = filter(local, isFallback)
	}
	return c
}

// Decide applies a traffic policy to the choice. Whether anything exists
// anywhere (the flag "any" of 3.8) is the same as the cluster set not being
// empty: hints never leave a non-empty set of ready endpoints empty.
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

func isReady(h *Host) bool { return h.Ready }

// isFallback tells whether a host may serve when none is ready (3.5). A host
// that is neither ready nor terminating is never used (3.6).
func isFallback(h *Host) bool { return h.Serving && h.Terminating }

// topology returns the filter that the hints ask for. A kind of hint counts
// only when every ready endpoint carries it and at least one names this node
// or its zone (3.10 to 3.13); node hints are looked at first.
func topology(endpoints []Endpoint, node *Node) func(*Host) bool {
	for _, hint := range []struct {
		here string
		of   func(*Host) []string
	}{
		{node.Name, func(h *Host) []string { return h.ForNodes }},
		{node.Zone, func(h *Host) []string { return h.ForZones }},
	} {
		here := func(h *Host) bool { return hint.here != "" && slices.Contains(hint.of(h), hint.here) }
		complete, named := true, false
		for _, e := range endpoints {
			if !e.Host.Ready {
				continue
			}
			complete = complete && len(hint.of(e.Host)) > 0
			named = named || here(e.Host)
		}
		if complete && named {
			return here
		}
	}
	return func(*Host) bool { return true }
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
