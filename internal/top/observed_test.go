package top

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/nftproxy/nftproxy/internal/api"
)

// TestObserved: 17.7. Where connections are observed, a line has the rates of those that are refused,
// fail and are served; elsewhere there is none.
func TestObserved(t *testing.T) {
	samples := feed(t)
	m := New(Config{Address: "127.0.0.1:10249"})
	m.width, m.height = 100, 30
	m.give(samples[0], nil)
	if text := ansi.Strip(m.Text()); strings.Contains(text, "observed") {
		t.Errorf("nothing is observed, and the view has\n%s", text)
	}
	before, now := *samples[0], *samples[0]
	before.Observe = &api.Observing{Level: "refusals", Events: 1000, Refused: 1000}
	now.Uptime += 2
	now.Observe = &api.Observing{Level: "refusals", Events: 1240, Refused: 1240, Lost: 1700}
	connections := now
	connections.Uptime += 2
	connections.Observe = &api.Observing{Level: "connections", Events: 1340, Refused: 1240, Failed: 20, Served: 80, Sampled: 500, SampledFailed: 3}
	m = New(Config{Address: "127.0.0.1:10249"})
	m.width, m.height = 100, 30
	for _, c := range []struct {
		sample *api.Sample
		want   string
	}{
		{&before, "\nobserved  refused -/s, 1,000 in all  nftproxy observe -f shows them\n"},
		{&now, "\nobserved  refused 120/s, 1,240 in all, 1,700 lost  nftproxy observe -f shows them\n"},
		{&connections, "\nobserved  refused 0/s, failed 10/s, served 40/s, 1,340 in all, 3 of 500 samples failed  nftproxy ob…\n"},
	} {
		m.give(c.sample, nil)
		if text := ansi.Strip(m.Text()); !strings.Contains(text, c.want) {
			t.Errorf("no %q in:\n%s", c.want, text)
		}
	}
}
