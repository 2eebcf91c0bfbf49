package explain

import (
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Omission is an endpoint that takes no new connections, and why.
type Omission struct {
	Endpoint model.Endpoint
	Reason   string
}

// leftOut returns the endpoints of a service port that take no new connections.
func leftOut(endpoints []model.Endpoint, node *model.Node, policy model.Policy) []Omission {
	selection := model.NewSelection(endpoints, node, policy)
	var out []Omission
	for _, e := range endpoints {
		if why := selection.Excludes(e.Host); why != model.Chosen {
			out = append(out, Omission{e, exclusionText(why, e.Host, node)})
		}
	}
	return out
}

func exclusionText(why model.Exclusion, h *model.Host, node *model.Node) string {
	switch why {
	case model.OtherNode:
		return "policy Local, and it is on node " + h.Node
	case model.ForOtherNode:
		return fmt.Sprintf("its topology hints are for node %s, this is %s", strings.Join(h.ForNodes, ", "), node.Name)
	case model.ForOtherZone:
		return fmt.Sprintf("its topology hints are for zone %s, this is %s", strings.Join(h.ForZones, ", "), node.Zone)
	}
	return map[model.Exclusion]string{
		model.Drained:    "its weight is 0",
		model.NoNode:     "policy Local, and its node is not known",
		model.NotReady:   "not ready",
		model.NotServing: "terminating, and no longer serving",
		model.NotNeeded:  "terminating, and others are ready",
	}[why]
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
			if p == (model.EndpointPort{Name: port.Port, Protocol: port.Protocol, Port: e.Address.Port()}) {
				for i := range s.Hosts {
					if s.Hosts[i].Address == e.Address.Addr() {
						n++
					}
				}
			}
		}
	}
	return n
}
