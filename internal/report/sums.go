package report

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
)

// sums count frontends and their endpoints, in all and by Service.
type sums struct {
	totals   api.Totals // without connections
	services []api.LiveService
	index    map[model.ServiceName]int
	seen     map[endpoint]bool
}

// endpoint is a distinct endpoint: of a Service, or of any.
type endpoint struct {
	service  int // its place, or anyService
	protocol model.Protocol
	address  netip.AddrPort
}

const anyService = -1

func newSums() *sums {
	return &sums{index: make(map[model.ServiceName]int), seen: make(map[endpoint]bool)}
}

// add adds a frontend, of a Balance or not.
func (s *sums) add(f *served.Frontend, isBalance bool) {
	name := f.Port.Service
	at, ok := s.index[name]
	if !ok {
		at = len(s.services)
		s.index[name], s.services = at, append(s.services, api.LiveService{Balance: isBalance, Namespace: name.Namespace, Name: name.Name})
		s.totals.Services++
	}
	of := &s.services[at]
	of.Relayed = of.Relayed || f.Relayed
	of.Frontends++
	s.totals.Frontends++
	if f.Inside.Verdict != model.Forward || f.Outside.Verdict != model.Forward {
		of.Unserved++
		s.totals.Unserved++
	}
	decisions := []served.Decision{f.Inside, f.Outside}
	if f.ExternalPolicy != model.PolicyLocal { // both are one
		decisions = decisions[:1]
	}
	for _, d := range decisions {
		for _, e := range d.Endpoints {
			of.Endpoints += s.first(endpoint{at, f.Protocol, e.Address})
			s.totals.Endpoints += s.first(endpoint{anyService, f.Protocol, e.Address})
		}
	}
}

// first returns 1 for an endpoint that was not seen before, or else 0.
func (s *sums) first(e endpoint) int {
	if s.seen[e] {
		return 0
	}
	s.seen[e] = true
	return 1
}
