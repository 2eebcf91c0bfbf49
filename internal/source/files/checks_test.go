package files

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/healthcheck"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestCheckExamples loads every example of docs/health-checks.md.
func TestCheckExamples(t *testing.T) {
	page, err := os.ReadFile("../../../docs/health-checks.md")
	if err != nil {
		t.Fatal(err)
	}
	types := make(map[model.CheckType]bool)
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		types[exampleCheck(t, m[1]).Type] = true
	}
	if len(types) != len(model.CheckTypes) {
		t.Errorf("examples of %d types, there are %d", len(types), len(model.CheckTypes))
	}
}

// exampleCheck returns the check of an example.
func exampleCheck(t *testing.T, text string) *model.Check {
	t.Helper()
	if strings.Contains(text, "kind:") {
		in, err := (&Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text)}).Load()
		if err != nil || len(in.Warnings) > 0 || len(in.Snapshot.Services) != 1 || in.Snapshot.Services[0].Check == nil {
			t.Fatalf("%s: %v %+v", text, err, in)
		}
		return in.Snapshot.Services[0].Check
	}
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	c, found := healthcheck.Parse("check", o["check"])
	if len(found) > 0 || len(o) != 1 {
		t.Fatalf("%s: %v", text, sourcetest.Texts(found))
	}
	return c
}
