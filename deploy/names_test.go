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
	// metric matches the names of the families of metrics that we have, and of recording rules.
	metric = regexp.MustCompile(`\b([a-z_]+:)?(kubeproxy|nftproxy|rest_client)_[a-z_]+\b(:[a-z0-9_]+)?`)
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

// TestDashboard reads it as JSON: every panel has a place of its own, asks something, and
// says what it shows and in which unit. Links lead to runbooks that exist.
func TestDashboard(t *testing.T) {
	type position struct{ X, Y, W, H int }
	type link struct{ URL string }
	var dashboard struct {
		Links  []link
		Panels []struct {
			Type, Title, Description string
			ID                       int
			GridPos                  position
			Targets                  []struct{ Expr string }
			Links                    []link
			FieldConfig              struct{ Defaults struct{ Unit string } }
		}
	}
	if err := json.Unmarshal(read(t, "grafana/nftproxy.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	books := strings.ToLower(string(read(t, "../docs/runbooks.md")))
	seen, cells, linked := make(map[int]bool), make(map[[2]int]string), 0
	for _, p := range dashboard.Panels {
		if seen[p.ID] {
			t.Errorf("panel %q has the number of another", p.Title)
		}
		seen[p.ID] = true
		if p.Type != "row" && (len(p.Targets) == 0 || p.FieldConfig.Defaults.Unit == "") {
			t.Errorf("panel %q asks nothing, or has no unit", p.Title)
		}
		if p.Type != "row" && !strings.HasSuffix(p.Description, ".") {
			t.Errorf("panel %q has the description %q", p.Title, p.Description)
		}
		for _, l := range p.Links {
			linked++
			if _, anchor, _ := strings.Cut(l.URL, runbooks); anchor == "" || !strings.Contains(books, "\n## "+anchor+"\n") {
				t.Errorf("panel %q links to %s", p.Title, l.URL)
			}
		}
		g := p.GridPos
		if g.W == 0 || g.H == 0 || g.X+g.W > 24 {
			t.Errorf("panel %q has the place %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("panels %q and %q are in the same place", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
	if len(seen) < 25 || linked < 10 || len(dashboard.Links) == 0 {
		t.Errorf("%d panels, %d of them linked, %d links", len(seen), linked, len(dashboard.Links))
	}
}
