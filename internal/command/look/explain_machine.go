package look

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

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
		addAddress(r)
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

// addAddress notes that clients do not reach the address of the Service.
func addAddress(r *explain.Result) {
	use := machine.Use{Endpoints: slices.Values([]netip.Addr(nil)), Addresses: slices.Values([]netip.Addr{r.Packet.Destination}), Words: r.Words}
	m := machine.Monitor{Use: func() (machine.Use, bool) { return use, true }, Log: slog.New(slog.DiscardHandler)}
	for _, f := range m.Warnings() {
		r.Notes = append(r.Notes, f.String())
	}
}

// machineProblems returns the problems that keep this machine from serving, as a daemon finds
// them.
func machineProblems(use machine.Use) []machine.Finding {
	m := machine.Monitor{Use: func() (machine.Use, bool) { return use, true }, Log: slog.New(slog.DiscardHandler)}
	return m.Problems()
}
