package top

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// colour is what the view itself writes for a terminal.
var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// FuzzSamples: whatever a daemon answers, also after another answer, is a text without control characters.
func FuzzSamples(f *testing.F) {
	for _, text := range []string{`{"node":"n1","version":"\u001b[2J","services":[{"namespace":"shop","name":"web","connections":3,"recent":1},{"name":"\u009b"}],"matching":-5}`,
		`{"time":"2026-11-01T00:00:00Z","counted":true,"services":[{"name":"web","connections":1}],"changes":[{"cause":"\u202e","services":["a"]}],"detail":{"namespace":"shop","name":"web","ports":[{"frontends":[{}],"endpointList":[{}]}]}}`,
		`{"problems":[{"object":{"kind":"\n"},"message":"\t"}],"sourceError":{"message":"\r"},"detail":{"ports":[]}}`, `{"services":[{}],"detail":null}`, "null", "{}"} {
		f.Add([]byte(text), []byte("{}"))
		f.Add([]byte("{}"), []byte(text))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		for _, service := range []string{"", "shop/web"} {
			m := New(Config{Service: service})
			m.width, m.height = 120, 40
			m.Init()
			hostile.CheckMemory(t, len(first)+len(second), 8192, func() {
				for _, content := range [][]byte{first, second} {
					s := new(api.Sample)
					if json.Unmarshal(content, s) != nil {
						continue
					}
					m.give(s, nil)
					for _, text := range []string{colour.ReplaceAllString(m.Text(), ""), m.renderOnce()} {
						hostile.CheckText(t, text)
						if strings.Contains(text, "\t") {
							t.Errorf("a tab moves columns: %q", text)
						}
					}
				}
			})
		}
	})
}
