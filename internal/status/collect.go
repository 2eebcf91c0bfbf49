package status

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// frontend is a frontend with its service port and decisions.
type frontend struct {
	model.Frontend
	port        model.PortName
	kind        model.Kind
	inside      Decision
	outside     *Decision
	connections *uint64 // nil without counters
}

type answer struct {
	protocol model.Protocol
	address  netip.AddrPort
}

// fill adds frontends to a report, sorted by service port.
func (r *Report) fill(all []frontend, endpoints map[answer]bool) {
	slices.SortFunc(all, func(a, b frontend) int {
		return cmp.Or(a.port.Compare(b.port), cmp.Compare(a.kind, b.kind), a.Frontend.Compare(b.Frontend))
	})
	r.Frontends, r.Endpoints = len(all), len(endpoints)
	for i := range all {
		f := &all[i]
		if i == 0 || f.port.Service != all[i-1].port.Service {
			r.Services++
		}
		if i == 0 || f.port != all[i-1].port {
			r.ServicePorts = append(r.ServicePorts, ServicePort{
				Namespace: f.port.Service.Namespace, Name: f.port.Service.Name, Port: f.port.Port, Protocol: f.port.Protocol.String(),
			})
		}
		p := &r.ServicePorts[len(r.ServicePorts)-1]
		p.Frontends = append(p.Frontends, Frontend{
			Kind: f.kind.String(), Address: netip.AddrPortFrom(f.Address, f.Port).String(),
			Decision: f.inside, Outside: f.outside, Connections: f.connections,
		})
	}
}
