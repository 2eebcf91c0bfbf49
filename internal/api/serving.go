package api

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Serving says whether a node serves a Service: whether clients from outside reach a server
// that is usable, which means that it takes new connections and does not fail its health
// check. A server is a host, with all its ports.
type Serving struct {
	APIVersion Version `json:"apiVersion"`
	Service    string  `json:"service"` // namespace/name
	Serves     bool    `json:"serves"`
	Usable     int     `json:"usableServers"`
	Servers    int     `json:"servers"`
	// Reason is why one of the others is not usable; empty: all are, or there is none.
	Reason string `json:"reason,omitempty"`
	// Unsynced is the reason why the rules in the kernel may differ from the description,
	// so that the answer is not known; empty: they do not differ.
	Unsynced string `json:"unsynced,omitempty"`
}

// Serving returns whether the node serves a Service. Servers that fail their health check
// are not usable even where all are used because all fail.
func (s *Description) Serving() Serving {
	out := Serving{Service: s.ServiceName().String(), Unsynced: s.Unsynced}
	usable, why := make(map[string]bool), make(map[string]string)
	for i := range s.Ports {
		p := &s.Ports[i]
		for j := range p.Endpoints {
			e := &p.Endpoints[j]
			reason := p.unusable(e)
			usable[e.Host()] = usable[e.Host()] || reason == ""
			if why[e.Host()] == "" {
				why[e.Host()] = reason
			}
		}
	}
	var others []string
	for host, ok := range usable {
		if ok {
			out.Usable++
		} else {
			others = append(others, host+": "+why[host])
		}
	}
	if len(others) > 0 {
		out.Reason = slices.Min(others)
	}
	out.Servers, out.Serves = len(usable), out.Usable > 0
	return out
}

// unusable returns why clients from outside do not reach an endpoint, or should not; empty:
// it is usable.
func (p *DescribedPort) unusable(e *DescribedEndpoint) string {
	share := e.Inside
	if e.Outside != nil {
		share = *e.Outside
	}
	switch {
	case share.Part == 0 && share.LeftOut != "":
		return share.LeftOut
	case share.Part == 0:
		return "it takes no connections"
	case e.Checked != nil && !e.Checked.Healthy:
		return "its health check fails: " + e.Checked.Message
	case !slices.ContainsFunc(p.Frontends, func(f DescribedFrontend) bool { return f.forwards(p.Protocol, e.Family) }):
		return "no address leads to it"
	}
	return ""
}

// forwards reports whether a frontend is of a family and of this Service, and forwards
// connections.
func (f *DescribedFrontend) forwards(protocol, family string) bool {
	at, err := model.ParseFrontend(protocol, f.Address) // as we print it
	return err == nil && model.FamilyOf(at.Address).String() == family && f.ServedBy == "" &&
		(f.Inside == model.Forward.String() || f.Outside == model.Forward.String())
}
