package golden

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// TestObjects: 1.48, the objects of every input, in which a Balance is the objects of
// Kubernetes that it stands for, lead to the same rules, relays and announcements. A Balance stays
// only if Kubernetes has no objects for it.
func TestObjects(t *testing.T) {
	forEachGolden(t, func(t *testing.T, c *testCase) {
		for _, p := range c.phases {
			again, text := p.reread(t)
			if strings.Contains(text, "kind: Balance") != slices.ContainsFunc(p.input.Snapshot.Services, beyondKubernetes) {
				t.Errorf("a Balance is left, or none:\n%s", text)
			}
			before, after := model.Resolve(p.input.Snapshot, p.flags.Config), model.Resolve(again, p.flags.Config)
			if diff := cmp.Diff(textOf(t, before), textOf(t, after)); diff != "" {
				t.Errorf("other rules (-input +objects):\n%s\n%s", diff, text)
			}
			if diff := cmp.Diff(stated(p.input.Snapshot), stated(again)); diff != "" {
				t.Errorf("other settings (-input +objects):\n%s\n%s", diff, text)
			}
		}
	})
}

// beyondKubernetes reports whether a Service has what no object of Kubernetes says.
func beyondKubernetes(s *model.Service) bool {
	e := s.Extra()
	together := s.Balance && s.AffinityTimeout > 0 && len(s.Ports)+len(e.Ranges) > 1
	return together || e.Relay != model.NoRelay || e.Announce != "" || len(e.Names)+len(e.Listeners)+len(e.MasqueradeFrom) > 0
}

// stated returns the settings of the Services of a snapshot that no rule shows, names and listeners.
func stated(s *model.Snapshot) map[string]string {
	out := make(map[string]string)
	for _, s := range s.Services {
		out[s.Name.String()] = fmt.Sprint(setting.StatedOf(s), s.Extra().Names, s.Extra().Listeners)
	}
	return out
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
