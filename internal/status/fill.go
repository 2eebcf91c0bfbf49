package status

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

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
	known       int     // endpoints
	local       bool    // its traffic policy
	ranges      bool    // has source ranges
	limits      bool    // of connections
	affinity    time.Duration
	scheduler   model.Scheduler
	endpoints   []netip.AddrPort // that take connections
}

type answer struct {
	protocol model.Protocol
	address  netip.AddrPort
}

// fill adds the frontends that a filter selects, sorted by service port, with their
// problems.
func (r *Report) fill(all []frontend, filter *Filter) {
	slices.SortFunc(all, func(a, b frontend) int {
		return cmp.Or(a.port.Compare(b.port), cmp.Compare(a.kind, b.kind), a.Frontend.Compare(b.Frontend))
	})
	r.suggest(all, filter)
	var ports [][]frontend // of the service ports
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].port == all[0].port {
			n++
		}
		if filter.matches(all[0].port.Service) {
			ports = append(ports, all[:n])
		}
		all = all[n:]
	}
	for _, p := range ports {
		r.judge(p)
	}
	if filter.Problems {
		affected := r.affected()
		ports = slices.DeleteFunc(ports, func(p []frontend) bool { return !affected[p[0].port.Service.Object().String()] })
	}
	r.count(ports)
	if filter.Rows > 0 && r.Frontends > filter.Rows {
		r.Omitted = r.Frontends
		return
	}
	for _, p := range ports {
		r.ServicePorts = append(r.ServicePorts, servicePort(p))
	}
}

func (r *Report) count(ports [][]frontend) {
	endpoints := make(map[answer]struct{})
	var last model.ServiceName
	for i, p := range ports {
		if i == 0 || p[0].port.Service != last {
			r.Services++
			last = p[0].port.Service
		}
		r.Frontends += len(p)
		for j := range p {
			for _, e := range p[j].endpoints {
				endpoints[answer{p[j].Protocol, e}] = struct{}{}
			}
		}
	}
	r.Endpoints = len(endpoints)
}

// servicePort returns the entry for the frontends of one service port.
func servicePort(all []frontend) ServicePort {
	port := all[0].port
	p := ServicePort{
		Namespace: port.Service.Namespace, Name: port.Service.Name, Port: port.Port, Protocol: port.Protocol.String(),
		Frontends: make([]Frontend, len(all)), AffinitySeconds: all[0].affinity.Seconds(),
	}
	if all[0].scheduler != model.DefaultScheduler {
		p.Scheduler = all[0].scheduler.String()
	}
	for i := range all {
		f := &all[i]
		p.Frontends[i] = Frontend{
			Kind: f.kind.String(), Address: f.address(), Decision: f.inside, Outside: f.outside,
			Connections: f.connections, Known: f.known, SourceRanges: f.ranges, Limits: f.limits,
		}
		if f.local {
			p.Frontends[i].Policy = model.PolicyLocal.String()
		}
	}
	return p
}

// address returns the address with the port.
func (f *frontend) address() string { return f.Target() }
