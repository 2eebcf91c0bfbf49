package healthcheck

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestCheckTable compares the table of fields in docs/health-checks.md with those that exist.
func TestCheckTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/health-checks.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| (`[a-zA-Z, `]+`) \\| (all|[a-z, ]+) \\|").FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			name = strings.Trim(name, "`")
			documented[name] = true
			f, known := checkFields[name]
			if of := strings.Join(f.typeNames(), ", "); !known || m[2] != of && (f.only != nil || m[2] != "all") {
				t.Errorf("field %s of %q: it is of %q", name, m[2], of)
			}
		}
	}
	for name := range checkFields {
		if !documented[name] {
			t.Errorf("field %s is not in the table", name)
		}
	}
}
