package status

import (
	"os"
	"strings"
	"testing"
)

// TestTroubleshooting proves that the page about symptoms has a row for every reason of
// a problem, and for no other.
func TestTroubleshooting(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Status reports a problem\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, c := range classes {
		if !strings.Contains(section, "\n| `"+c.reason+"` | ") {
			t.Errorf("%s is not in docs/troubleshooting.md", c.reason)
		}
	}
	if n := strings.Count(section, "\n| `"); n != len(classes) {
		t.Errorf("docs/troubleshooting.md has %d reasons, and status %d", n, len(classes))
	}
}
