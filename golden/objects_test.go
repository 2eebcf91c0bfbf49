package golden

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// TestObjects: 1.48, the objects of every input, in which a Balance is the objects of
// Kubernetes that it stands for, lead to the same rules.
func TestObjects(t *testing.T) {
	forEachGolden(t, func(t *testing.T, c *testCase) {
		for _, p := range c.phases {
			if slices.ContainsFunc(p.input.Snapshot.Services, func(s *model.Service) bool { return s.Extra().Relay != model.NoRelay }) {
				continue // no object of Kubernetes asks for a relay (4.96)
			}
			again, text := p.reread(t)
			if strings.Contains(text, "kind: Balance") {
				t.Errorf("a Balance is left:\n%s", text)
			}
			before, after := model.Resolve(p.input.Snapshot, p.flags.Config), model.Resolve(again, p.flags.Config)
			if diff := cmp.Diff(textOf(t, before), textOf(t, after)); diff != "" {
				t.Errorf("other rules (-input +objects):\n%s\n%s", diff, text)
			}
		}
	})
}

// reread writes the objects of an input and reads them.
func (p *phase) reread(t *testing.T) (*model.Snapshot, string) {
	t.Helper()
	var text strings.Builder
	if err := p.input.WriteManifests(&text); err != nil {
		t.Fatal(err)
	}
	in, err := (&files.Reader{Paths: []string{"-"}, Stdin: bytes.NewReader([]byte(text.String())), ProxyName: p.flags.proxyName}).Load()
	if err != nil {
		t.Fatalf("%v in\n%s", err, &text)
	}
	return in.Snapshot, text.String()
}

func textOf(t *testing.T, r *model.Routing) string {
	t.Helper()
	return text(t, render.Render(r))
}
