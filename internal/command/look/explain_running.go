package look

import (
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/model"
)

// addDescription adds the endpoints and claims that a daemon describes. What is noted so far stays: it
// may name what others have named, such as tables of a firewall.
func addDescription(r *explain.Result, d *api.Description) {
	r.Words = d.Words()
	_, port, _ := strings.Cut(r.Service, ":")
	r.AddSources(d.SourceLists(r.Kind, model.FamilyOf(r.Packet.Destination)))
	used := make(map[netip.AddrPort]bool)
	for _, o := range r.Outcomes {
		used[o.Endpoint] = true
	}
	for i := range d.Ports {
		p := &d.Ports[i]
		if p.Name != port || p.Protocol != r.Packet.Protocol.String() {
			continue
		}
		for _, e := range p.Endpoints {
			r.NameEndpoint(e.AddrPort().Addr(), e.Name)
			if used[e.AddrPort()] && e.Checked != nil && !e.Checked.Healthy {
				r.Notes = append(r.Notes, r.Words.Sprintf("endpoint %s fails its health check: %s; it is used because no other endpoint passes", e.Address, e.Checked.Message))
			}
			if e.Family == model.FamilyOf(r.Packet.Destination).String() && !used[e.AddrPort()] {
				r.AddOmission(e.AddrPort(), e.Reason(r.Kind == model.ClusterIP.String(), r.Outside()))
			}
		}
		for _, z := range p.ZoneFloors {
			if z.Family == model.FamilyOf(r.Packet.Destination).String() {
				r.AddZoneRule(z.Rule)
			}
		}
		for j := range p.Frontends {
			if f := &p.Frontends[j]; p.Frontend(f) == r.Packet.Frontend() {
				for _, loser := range f.AlsoClaimed {
					r.Conflicts = append(r.Conflicts, explain.Claim{Service: loser})
				}
			}
		}
	}
}
