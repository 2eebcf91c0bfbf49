package daemon

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEveryMetricIsDocumented: 11.10, 11.11. docs/metrics.md has a row for each metric that a process registers which was asked
// for everything, with its labels, and for no other.
func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [a-z]+ \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = strings.ReplaceAll(m[2], "`", "")
	}
	registered := described(t, withEverything(t).metrics)
	for name := range registered {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			delete(registered, name) // of the runtime
		}
	}
	if diff := cmp.Diff(documented, registered); diff != "" {
		t.Errorf("docs/metrics.md differs from what is registered (-page +registered):\n%s", diff)
	}
}
