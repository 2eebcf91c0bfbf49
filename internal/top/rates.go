package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
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

// Rated is a sample with the rates since the one before: the JSON of "nftproxy top".
type Rated struct {
	*api.Sample
	// PerSecond are new connections per second; absent without counters.
	PerSecond *PerSecond `json:"perSecond,omitempty"`
}

// PerSecond are the rates of a [Rated]. Services has the known rates, by "namespace/name",
// and Frontends the rates of the detail, by names such as "tcp 10.96.0.10:80".
type PerSecond struct {
	Total     float64            `json:"total"`
	Services  map[string]float64 `json:"services"`
	Frontends map[string]float64 `json:"frontends,omitempty"`
	// Endpoints has the rates of the detail, by names such as "http tcp 10.128.0.2:8080".
	Endpoints map[string]float64 `json:"endpoints,omitempty"`
}

func newRated(before, now *api.Sample) Rated {
	out, r := Rated{Sample: now}, RatesOf(before, now)
	if r.Known {
		out.PerSecond = &PerSecond{r.Total, make(map[string]float64), r.Frontends, r.Endpoints}
		for name, rate := range r.Services {
			out.PerSecond.Services[name.String()] = rate
		}
	}
	return out
}

// Once takes two samples with a pause in between, so that there are rates, and writes
// the second one as text or as JSON.
func Once(ctx context.Context, w io.Writer, c Config, asJSON bool) error {
	q := api.LiveQuery{Limit: limit, Filter: c.Filter, Service: c.Service}
	before, now, err := twoSamples(ctx, c.Ask, q)
	if err != nil {
		return err
	}
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(newRated(before, now))
	}
	m := New(c)
	m.width = 100
	m.storeAnswer(answer{service: c.Service, sample: before})
	m.storeAnswer(answer{service: c.Service, sample: now})
	if _, err := io.WriteString(w, m.renderOnce()); err != nil {
		return fmt.Errorf("write sample: %w", err)
	}
	return nil
}

// twoSamples returns two samples of different readings. Without counters one suffices:
// they are the same.
func twoSamples(ctx context.Context, ask Ask, q api.LiveQuery) (before, now *api.Sample, err error) {
	if before, err = ask(ctx, q); err != nil || !before.Counted {
		return before, before, err
	}
	for now = before; now.Uptime == before.Uptime && now.Instance == before.Instance; {
		if !parallel.Wait(ctx, period) {
			return nil, nil, ctx.Err()
		}
		if now, err = ask(ctx, q); err != nil {
			return nil, nil, err
		}
	}
	return before, now, nil
}

// renderOnce returns the whole view as text: no row is cut off or selected. It has no styles,
// unless colours are wanted.
func (m *Model) renderOnce() string {
	lines := m.headLines()
	if m.detail != "" {
		lines = append(lines, m.detailLines()...)
	} else {
		all := m.sortedServices()
		lines = append(lines, m.tableLines(all, all, -1)...)
		if rest := m.now.Matching - len(all); rest > 0 {
			lines = append(lines, fmt.Sprintf("  and %s (--filter selects)", m.count(rest, "more Service")))
		}
		if n := min(len(m.now.Changes), maxChanges); n > 0 {
			lines = append(append(lines, "", "CHANGES"), m.changeLines(n)...)
		}
	}
	for i, l := range lines {
		if !m.config.Colours {
			l = ansi.Strip(l)
		}
		lines[i] = strings.TrimRight(l, " ")
	}
	return m.replaceUndisplayable(strings.Join(lines, "\n")) + "\n"
}
