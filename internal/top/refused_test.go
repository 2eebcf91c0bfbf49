package top

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/nftproxy/nftproxy/internal/api"
)

// TestRefused: 17.7. Where refused connections are observed, a line has their rate; elsewhere
// there is none.
func TestRefused(t *testing.T) {
	samples := feed(t)
	m := New(Config{Address: "127.0.0.1:10249"})
	m.width, m.height = 100, 30
	m.give(samples[0], nil)
	if text := ansi.Strip(m.Text()); strings.Contains(text, "refused") {
		t.Errorf("nothing is observed, and the view has\n%s", text)
	}
	before, now := *samples[0], *samples[0]
	before.Observe = &api.Observing{Level: "refusals", Events: 1000}
	now.Uptime += 2
	now.Observe = &api.Observing{Level: "refusals", Events: 1240, Lost: 1700}
	m = New(Config{Address: "127.0.0.1:10249"})
	m.width, m.height = 100, 30
	m.give(&before, nil)
	if text := ansi.Strip(m.Text()); !strings.Contains(text, "\nrefused  - events/s, 1,000 in all, of samples") {
		t.Errorf("before the second sample:\n%s", text)
	}
	m.give(&now, nil)
	if text := ansi.Strip(m.Text()); !strings.Contains(text, "\nrefused  120 events/s, 1,240 in all, of samples, 1,700 lost  nftproxy observe -f shows them\n") {
		t.Errorf("after it:\n%s", text)
	}
}
