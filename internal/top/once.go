package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/nftproxy/nftproxy/internal/api"
)

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

// newRated returns the JSON of two samples.
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
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(period):
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
