package look

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/model"
)

// addMachine adds what stops the connection outside of the tables: no route to an
// endpoint, no forwarding, a filter of another program.
func addMachine(r *explain.Result) {
	own, err := host.InterfaceAddresses()
	if err != nil {
		return
	}
	if !r.Packet.FromNode && !slices.Contains(own, r.Packet.Destination) {
		use := machine.Use{Endpoints: slices.Values([]netip.Addr(nil)), Addresses: slices.Values([]netip.Addr{r.Packet.Destination}), Words: r.Words}
		for _, f := range monitor(use).Warnings() { // clients do not reach the address of the Service
			r.Notes = append(r.Notes, f.String())
		}
	}
	var elsewhere []netip.Addr
	for _, o := range r.Outcomes {
		if a := o.Endpoint.Addr(); a.IsValid() && !slices.Contains(own, a) {
			elsewhere = append(elsewhere, a)
		}
	}
	if len(elsewhere) == 0 {
		return
	}
	const most = 3 // notes about routes
	missing := 0
	for _, a := range elsewhere {
		if !conntest.RoutedSource(a).IsValid() && missing < most {
			r.Notes = append(r.Notes, fmt.Sprintf("this machine has no route to %s", a))
			missing++
		}
	}
	if r.Packet.FromNode {
		return // the packet is sent, not forwarded
	}
	use := machine.Use{Families: []model.Family{model.FamilyOf(r.Packet.Destination)}, Endpoints: slices.Values(elsewhere), Words: r.Words}
	for _, f := range machineProblems(use) {
		r.Notes = append(r.Notes, f.String())
	}
}

// machineProblems returns the problems that keep this machine from serving, as a daemon finds
// them.
func machineProblems(use machine.Use) []machine.Finding { return monitor(use).Problems() }

func monitor(use machine.Use) *machine.Monitor {
	return &machine.Monitor{Use: func() (machine.Use, bool) { return use, true }, Log: slog.New(slog.DiscardHandler)}
}

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
