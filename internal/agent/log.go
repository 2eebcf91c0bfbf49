package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// syncLog logs syncs, each fact once.
type syncLog struct {
	agent    *Config
	objects  *slog.Logger       // receives notices, which have no limit in number
	notices  []model.Notice     // last logged
	versions [3]uint64          // of the router's notices, and of those about the quarantine and kept Services
	failed   bool               // the last sync
	owner    *kernel.OwnedError // why the last sync failed, if another process owns our tables
}

func (l *syncLog) logSync(s *Sync, first bool) {
	switch {
	case s.Err != nil:
		l.logError(s.Err)
	case len(s.Interventions) > 0:
		l.logInterventions(s)
	case s.Cause == Check && !s.Plan.Empty():
		l.agent.Log.Warn("rules were changed by other programs and are repaired", "added", s.Plan.Count(plan.Add),
			"changed", s.Plan.Count(plan.Replace), "deleted", s.Plan.Count(plan.Delete))
	case !s.Plan.Empty() || l.failed:
		l.logApplied(s, first)
	}
	l.failed = s.Err != nil
	if !l.failed {
		l.owner = nil
	}
}

// logNotices logs new notices, and reports whether the notices have changed: they have versions.
func (l *syncLog) logNotices(s *Sync, versions [3]uint64) bool {
	if versions == l.versions {
		return false
	}
	notices := s.Notices()
	known := make(map[model.Notice]bool, len(l.notices))
	for _, n := range l.notices {
		known[n] = true
	}
	for _, n := range notices {
		if !known[n] {
			l.objects.Warn(n.Message, "object", n.Object)
		}
	}
	l.notices, l.versions = notices, versions
	return true
}

// logInterventions logs which process did what, and the size of the repair. The
// repair is empty if an intervention made no difference or another sync was first.
func (l *syncLog) logInterventions(s *Sync) {
	level := slog.LevelWarn
	if s.Plan.Empty() {
		level = slog.LevelInfo
	}
	for _, i := range s.Interventions {
		if i.Missed {
			l.agent.Log.Log(context.Background(), level, "some changes of rules by other programs were missed; all rules were compared")
			continue
		}
		l.agent.Log.Log(context.Background(), level, "our rules were changed by another process",
			"process", i.By.Name, "pid", i.By.PID, "objects", i.Counts, "first", strings.Join(i.Touched, "; "))
	}
	l.agent.Log.Log(context.Background(), level, "rules repaired", "changes", len(s.Plan.Changes))
}

// logError logs a failed sync; while one process owns our tables, only once.
func (l *syncLog) logError(err error) {
	before := l.owner
	l.owner = nil
	if errors.As(err, &l.owner) && before != nil && *before == *l.owner {
		l.agent.Log.Debug("rules cannot be applied", "error", err)
		return
	}
	l.agent.Log.Error("rules cannot be applied and stay unchanged", "error", err)
}

// logApplied logs what was applied. The first sync changes what differs from the
// rules of an earlier run, so the Services of its routes say nothing.
func (l *syncLog) logApplied(s *Sync, first bool) {
	if !l.agent.Log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	var args []any
	if !first {
		args = s.logAttributes()
	}
	services, frontends := s.Router.Len()
	l.agent.Log.Info("rules applied", append(args, "services", services, "frontends", frontends, "added", s.Plan.Count(plan.Add),
		"changed", s.Plan.Count(plan.Replace), "deleted", s.Plan.Count(plan.Delete),
		"duration", s.Duration.Round(time.Microsecond))...)
}

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
