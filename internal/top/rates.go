package top

import (
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Rates are new connections per second between two samples. A Service without a known
// rate is absent.
type Rates struct {
	Known    bool    // the total is known
	Total    float64 // of all Services, with any filter
	Services map[model.ServiceName]float64
	// Frontends has the rates of the Service in the detail, by protocol and address.
	Frontends map[string]float64
	// Endpoints has the rates of its endpoints, by [EndpointKey].
	Endpoints map[string]float64
}

// RatesOf returns the rates between two samples of one address. There are none if
// connections are not counted, if the process has been restarted, and if no time has
// passed between the two readings.
func RatesOf(before, now *api.Sample) Rates {
	var r Rates
	if before == nil || now == nil || !now.Counted || !before.Counted || before.Instance != now.Instance {
		return r
	}
	seconds := now.Uptime - before.Uptime
	if seconds <= 0 {
		return r
	}
	r.Total, r.Known = growthRate(before.Totals.Connections, now.Totals.Connections, seconds)
	r.Services = make(map[model.ServiceName]float64, len(now.Services))
	known := make(map[model.ServiceName]*uint64, len(before.Services))
	eachService(before, func(s *api.LiveService) { known[s.ServiceName()] = s.Connections })
	eachService(now, func(s *api.LiveService) {
		switch old, had := known[s.ServiceName()]; {
		case s.Connections == nil:
		case had && old != nil:
			if n, ok := growthRate(*old, *s.Connections, seconds); ok {
				r.Services[s.ServiceName()] = n
			}
		case s.Recent != nil && now.RecentSince > 0 && now.RecentSince < now.Uptime:
			// The list has the busiest Services, and this one is new in it.
			r.Services[s.ServiceName()] = float64(*s.Recent) / (now.Uptime - now.RecentSince)
		}
	})
	r.Frontends = detailRates(before.Detail, now.Detail, seconds, eachFrontend)
	if before.Detail != nil && now.Detail != nil && now.Detail.Read > before.Detail.Read {
		r.Endpoints = detailRates(before.Detail, now.Detail, now.Detail.Read-before.Detail.Read, eachEndpoint)
	}
	return r
}

// eachService calls f for the Services of a sample, including the one of the detail.
func eachService(s *api.Sample, f func(*api.LiveService)) {
	for i := range s.Services {
		f(&s.Services[i])
	}
	if s.Detail != nil {
		f(&s.Detail.LiveService)
	}
}

// detailRates returns the rates of the counters that each finds in a detail.
func detailRates(before, now *api.LiveDetail, seconds float64, each func(*api.LiveDetail, func(key string, n uint64))) map[string]float64 {
	if before == nil || now == nil || before.ServiceName() != now.ServiceName() {
		return nil
	}
	known := make(map[string]uint64)
	each(before, func(key string, n uint64) { known[key] = n })
	out := make(map[string]float64)
	each(now, func(key string, n uint64) {
		if r, ok := growthRate(known[key], n, seconds); ok {
			out[key] = r
		}
	})
	return out
}

func eachFrontend(d *api.LiveDetail, f func(key string, connections uint64)) {
	for i := range d.Ports {
		p := &d.Ports[i]
		for j := range p.Frontends {
			if n := p.Frontends[j].Connections; n != nil {
				f(FrontendKey(p.Protocol, p.Frontends[j].Address), *n)
			}
		}
	}
}

func eachEndpoint(d *api.LiveDetail, f func(key string, connections uint64)) {
	for i := range d.Ports {
		p := &d.Ports[i]
		for j := range p.EndpointList {
			if n := p.EndpointList[j].Connections; n != nil {
				f(EndpointKey(p, &p.EndpointList[j]), *n)
			}
		}
	}
}

// EndpointKey returns the key of an endpoint of a port in [Rates.Endpoints].
func EndpointKey(p *api.LivePort, e *api.LiveEndpoint) string {
	return p.Port + " " + FrontendKey(p.Protocol, e.Address)
}

// FrontendKey returns the key of a frontend in [Rates.Frontends].
func FrontendKey(protocol, address string) string { return protocol + " " + address }

// growthRate returns the growth of a counter per second. A counter that has fallen has lost
// a part, such as a frontend of its Service: the growth of the rest is unknown.
func growthRate(before, now uint64, seconds float64) (float64, bool) {
	if now < before {
		return 0, false
	}
	return float64(now-before) / seconds, true
}
