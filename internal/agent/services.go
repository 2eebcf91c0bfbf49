package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// presence is a set of facts about the routes of a Service in a sync.
type presence uint8

const (
	before    presence = 1 << iota // it has routes before the sync
	after                          // and after it
	differing                      // clients may notice the change of one
	whole                          // its ClusterIP comes or goes, or it has none
)

// Services returns the Services with a route that this sync changes so that clients
// may notice, sorted, each once. The cost grows with Routes, and is paid once.
func (s *Sync) Services() []model.ServiceName {
	if s.services == nil {
		s.sortServices()
	}
	return s.services.all
}

// changedServices are the Services that a sync changes, sorted.
type changedServices struct{ all, added, changed, removed []model.ServiceName }

func (s *Sync) sortServices() {
	found := make(map[model.ServiceName]presence)
	note := func(r *model.Route, p, differs presence) {
		if r == nil {
			return
		}
		if p |= differs; r.Kind == model.ClusterIP || r.Service.NoClusterIP {
			p |= whole
		}
		found[r.Service.Name] |= p
	}
	for i := range s.Routes {
		c, differs := &s.Routes[i], presence(0)
		if c.Frontend.IsEcho() { // follows from the others
			continue
		}
		if c.Differs() {
			differs = differing
		}
		note(c.Old, before, differs)
		note(c.New, after, differs)
	}
	out := &changedServices{}
	for name, p := range found {
		if p&differing == 0 {
			continue
		}
		out.all = append(out.all, name)
		switch {
		case p&(before|whole) == whole:
			out.added = append(out.added, name)
		case p&(after|whole) == whole:
			out.removed = append(out.removed, name)
		default:
			out.changed = append(out.changed, name)
		}
	}
	for _, names := range [][]model.ServiceName{out.all, out.added, out.changed, out.removed} {
		slices.SortFunc(names, model.ServiceName.Compare)
	}
	s.services = out
}

// maxNamed limits the number of routes of a sync whose Services the log names.
const maxNamed = 10_000

// logAttributes returns the attributes of a log line that name the Services of a sync.
func (s *Sync) logAttributes() (out []any) {
	if len(s.Routes) > maxNamed {
		return nil
	}
	_ = s.Services()
	for _, group := range []struct {
		key   string
		names []model.ServiceName
	}{{"addedServices", s.services.added}, {"changedServices", s.services.changed}, {"removedServices", s.services.removed}} {
		if len(group.names) > 0 {
			out = append(out, group.key, listNames(group.names))
		}
	}
	return out
}

// listNames returns for example "shop/cart shop/web and 3 more".
func listNames(names []model.ServiceName) string {
	const most = 3
	var parts []string
	for _, n := range names[:min(len(names), most)] {
		parts = append(parts, n.String())
	}
	text := strings.Join(parts, " ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}
