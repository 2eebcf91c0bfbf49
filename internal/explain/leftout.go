package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Omission is an endpoint that takes no new connections, and why.
type Omission struct {
	Endpoint model.Endpoint
	Reason   string
}

// LeftOut tells of each of the endpoints of a service port that [model.Choose]
// does not take for a policy why it does not. endpoints are those that
// [model.Endpoints] returns.
func LeftOut(endpoints []model.Endpoint, node *model.Node, policy model.Policy) []Omission {
	c := newCandidates(endpoints, node, policy)
	var out []Omission
	for _, e := range endpoints {
		if why := c.reason(e.Host); why != "" {
			out = append(out, Omission{e, why})
		}
	}
	return out
}

// candidates is what the reasons depend on beyond the endpoint in question.
type candidates struct {
	node     *model.Node
	policy   model.Policy
	anyReady bool
	// byNode and byZone tell which hints are heeded.
	byNode, byZone bool
}

func newCandidates(endpoints []model.Endpoint, node *model.Node, policy model.Policy) *candidates {
	c := &candidates{node: node, policy: policy}
	var ready []*model.Host
	for _, e := range endpoints {
		if h := e.Host; h.Ready && c.place(h) == "" {
			ready = append(ready, h)
		}
	}
	c.anyReady = len(ready) > 0
	if policy == model.PolicyCluster {
		c.byNode = heeded(ready, node.Name, forNodes)
		c.byZone = !c.byNode && heeded(ready, node.Zone, forZones)
	}
	return c
}

func forNodes(h *model.Host) []string { return h.ForNodes }
func forZones(h *model.Host) []string { return h.ForZones }

// heeded tells whether a kind of hint counts: every ready endpoint must carry
// it, and one must name where we are (3.10 to 3.13).
func heeded(ready []*model.Host, here string, hints func(*model.Host) []string) bool {
	named := false
	for _, h := range ready {
		if len(hints(h)) == 0 {
			return false
		}
		named = named || slices.Contains(hints(h), here)
	}
	return named && here != ""
}

// place tells why a host is out of the question whatever its condition is.
func (c *candidates) place(h *model.Host) string {
	switch {
	case h.Drain:
		return "its weight is 0"
	case c.policy == model.PolicyCluster:
		return ""
	case h.Node == "":
		return "policy Local, and its node is not known"
	case h.Node != c.node.Name:
		return fmt.Sprintf("policy Local, and it is on node %s", model.Printable(h.Node))
	}
	return ""
}

// reason returns why a host takes no new connections; nothing if it does.
func (c *candidates) reason(h *model.Host) string {
	if why := c.place(h); why != "" {
		return why
	}
	switch {
	case c.anyReady && h.Ready:
		return c.hinted(h)
	case h.Terminating && !h.Serving:
		return "terminating, and no longer serving"
	case h.Terminating && c.anyReady:
		return "terminating, and others are ready"
	case h.Terminating:
		return ""
	}
	return "not ready"
}

// hinted tells why a ready host is left to others.
func (c *candidates) hinted(h *model.Host) string {
	switch {
	case c.byNode && !slices.Contains(h.ForNodes, c.node.Name):
		return fmt.Sprintf("its topology hints are for node %s, this is %s", model.Printable(strings.Join(h.ForNodes, ", ")), c.node.Name)
	case c.byZone && !slices.Contains(h.ForZones, c.node.Zone):
		return fmt.Sprintf("its topology hints are for zone %s, this is %s", model.Printable(strings.Join(h.ForZones, ", ")), model.Printable(c.node.Zone))
	}
	return ""
}

// elsewhere tells of endpoints of a service port that [model.Endpoints] does
// not return for a family: those of the other one, and further records of one
// address.
func elsewhere(port model.PortName, f model.Family, ss []*model.EndpointSlice) []Omission {
	var out []Omission
	for _, other := range model.Families {
		if other == f {
			continue
		}
		for _, e := range model.Endpoints(port, other, ss) {
			out = append(out, Omission{e, fmt.Sprintf("%s, and the frontend is %s", other, f)})
		}
	}
	for _, e := range model.Endpoints(port, f, ss) {
		if n := records(port, e, ss); n > 1 {
			out = append(out, Omission{e, fmt.Sprintf("%d of %d records of it: the best one counts", n-1, n)})
		}
	}
	return out
}

// records counts how often the slices name an endpoint.
func records(port model.PortName, e model.Endpoint, ss []*model.EndpointSlice) int {
	n := 0
	for _, s := range ss {
		for _, p := range s.Ports {
			if p.Name != port.Port || p.Protocol != port.Protocol || p.Port != e.Address.Port() {
				continue
			}
			for i := range s.Hosts {
				if s.Hosts[i].Address == e.Address.Addr() {
					n++
				}
			}
		}
	}
	return n
}
