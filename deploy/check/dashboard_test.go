package check

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// TestDashboardQueries: Prometheus accepts the query of every panel.
func TestDashboardQueries(t *testing.T) {
	text, err := os.ReadFile("../grafana/nftproxy.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	variables, queries := strings.NewReplacer("$job", "nftproxy", "$instance", "node-1", "$__rate_interval", "5m"), 0
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries++
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(target.Expr)); err != nil {
				t.Errorf("panel %q: %v", p.Title, err)
			}
		}
	}
	if queries < 25 {
		t.Errorf("%d queries: is the dashboard complete?", queries)
	}
}
