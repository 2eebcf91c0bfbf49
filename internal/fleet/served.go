package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Served is how some nodes serve a Service: all in the same way. The names of the JSON fields
// are stable.
type Served struct {
	Nodes []string `json:"nodes"`
	// Description is the one of the first node; nil: Error says why there is none.
	Description *api.Description `json:"description,omitempty"`
	Error       string           `json:"error,omitempty"`
}

// Group joins the nodes that serve a Service in the same way, the most nodes first. What counts
// connections and clients, and what is of the node alone, does not matter.
func Group(answers []Answer[api.Description]) []Served {
	var out []Served
	at := make(map[string]int)
	for i := range answers {
		a := &answers[i]
		key := "error " + fmt.Sprint(a.Err)
		if a.Err == nil {
			key = likeness(a.Document)
		}
		n, known := at[key]
		if !known {
			n = len(out)
			at[key] = n
			s := Served{Description: a.Document}
			if a.Err != nil {
				s.Error = a.Err.Error()
			}
			out = append(out, s)
		}
		out[n].Nodes = append(out[n].Nodes, a.Agent.Node)
	}
	slices.SortStableFunc(out, func(a, b Served) int { return len(b.Nodes) - len(a.Nodes) })
	return out
}

// likeness returns a text that is the same for nodes that serve a Service in the same way.
func likeness(d *api.Description) string {
	like := *d
	like.Node, like.Zone, like.Clients, like.Refused, like.Changed, like.Unsynced, like.Unknown = "", "", nil, nil, nil, "", nil
	like.HealthCheck, like.Limits = nil, nil
	like.Ports = slices.Clone(d.Ports)
	for i := range like.Ports {
		p := &like.Ports[i]
		p.Frontends, p.Endpoints = slices.Clone(p.Frontends), slices.Clone(p.Endpoints)
		for j := range p.Frontends {
			f := &p.Frontends[j]
			f.Connections, f.Dropped = nil, nil
		}
		for j := range p.Endpoints {
			e := &p.Endpoints[j]
			e.Clients, e.Connections, e.Open, e.Checked = nil, nil, nil, nil
		}
	}
	text, err := json.Marshal(like)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// maxNamed is how many nodes of a group are named.
const maxNamed = 8

// Title names the nodes.
func (s *Served) Title() string {
	return fmt.Sprintf("%s: %s", terminal.Count(len(s.Nodes), "node"), strings.TrimSpace(terminal.List(s.Nodes, maxNamed)))
}
