package deploy_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// metric matches the names of the families of metrics that we have.
	metric = regexp.MustCompile(`\b(kubeproxy|nftproxy|rest_client)_[a-z_]+\b`)
	// series are what the name of a histogram can have behind it.
	series = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// TestMetrics finds what alerts and dashboard ask for in the list of metrics.
func TestMetrics(t *testing.T) {
	documented := make(map[string]bool)
	for line := range strings.Lines(string(read(t, "../docs/metrics.md"))) {
		if cell, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ := strings.Cut(cell, "`")
			documented[name] = true
		}
	}
	for _, path := range []string{"prometheus/alerts.yaml", "grafana/nftproxy.json"} {
		names := make(map[string]bool)
		for _, name := range metric.FindAllString(string(read(t, path)), -1) {
			names[series.ReplaceAllString(name, "")] = true
		}
		if len(names) < 10 {
			t.Errorf("%s names %d metrics only: is it complete?", path, len(names))
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if !documented[name] {
				t.Errorf("%s names %s, which docs/metrics.md does not have", path, name)
			}
		}
	}
}

// TestDashboard reads it as JSON: every panel has a place and asks something.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Type    string
			Title   string
			ID      int
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, "grafana/nftproxy.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	seen := make(map[int]bool)
	for _, p := range dashboard.Panels {
		if seen[p.ID] {
			t.Errorf("panel %q has the number of another", p.Title)
		}
		seen[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks nothing", p.Title)
		}
		if g := p.GridPos; g.W == 0 || g.H == 0 || g.X+g.W > 24 {
			t.Errorf("panel %q has the place %+v", p.Title, g)
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d panels", len(seen))
	}
}
