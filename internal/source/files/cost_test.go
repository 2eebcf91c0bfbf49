package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// cost is what a work allocates.
type cost struct{ bytes, objects float64 }

func costOf(f func()) cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return cost{float64(after.TotalAlloc - before.TotalAlloc), float64(after.Mallocs - before.Mallocs)}
}

// parsingCost is what the YAML library allocates for a text alone.
func parsingCost(t *testing.T, text []byte) cost {
	t.Helper()
	return costOf(func() {
		d := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var n yaml.Node
			if err := d.Decode(&n); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// balances returns a text with n Balances of two servers.
func balances(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "---\nkind: Balance\nname: web%d\nlisten: 203.0.%d.%d:443/tcp\nbackends:\n- 10.1.%[2]d.%[3]d:8443\n- address: 10.2.%[2]d.%[3]d:8443\n  weight: 3\ncheck: {http: /healthz}\n", i, i>>8, i&255)
	}
	return b.Bytes()
}

// TestReadingCost: reading allocates a small multiple of what the YAML library alone does, at the start
// and after an edit; docs/budgets.md has the same ratios. After an edit, one Service is a change.
func TestReadingCost(t *testing.T) {
	texts := sourcetest.ManyTexts(1000)
	for name, c := range map[string]struct {
		text           []byte
		services       int
		old, edited    string
		bytes, objects float64 // at most, as multiples
	}{
		"Balances":  {balances(1000), 1000, "10.1.1.7:8443", "10.1.1.7:8444", 7, 5},
		"documents": {sourcetest.DocumentsOf(texts), 1000, "", "", 2.4, 2},
		"List":      {sourcetest.ListOf(texts), 1000, "", "", 2.4, 2},
	} {
		for isolated, follow := range followers {
			t.Run(name+isolated, func(t *testing.T) {
				parsing := parsingCost(t, c.text)
				s, path := follow(t, c.text)
				load := func(what string, changed int) {
					got := costOf(func() {
						if u, err := s.Load(); err != nil || len(u.Services) != changed {
							t.Fatalf("%s: %d Services changed, want %d: %v", what, len(u.Services), changed, err)
						}
					})
					memory, objects := got.bytes/parsing.bytes, got.objects/parsing.objects
					t.Logf("%s: %.2f times the memory, %.2f times the objects", what, memory, objects)
					if memory > c.bytes || objects > c.objects {
						t.Errorf("%s allocates %.2f times the memory of parsing and %.2f times the objects, want at most %g and %g", what, memory, objects, c.bytes, c.objects)
					}
				}
				load("the first load", c.services)
				load("the same text", 0)
				if c.old != "" {
					check(t, os.WriteFile(path, []byte(strings.Replace(string(c.text), c.old, c.edited, 1)), 0o600))
					load("an edit", 1)
				}
			})
		}
	}
}
