package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	// maxHistory is how many Services have their last change remembered.
	maxHistory = 1024
	// maxDetailed is how many Services a sync may change so that each change is
	// described: that costs some microseconds for each.
	maxDetailed = 64
	// maxWhat is the longest description in bytes.
	maxWhat = 300
)

// history holds the last changes of Services, those that changed last. The zero value is
// empty.
type history struct {
	last    map[model.ServiceName]changed
	started time.Time // end of the first sync; zero: none yet
	oldest  time.Time // no change after it is forgotten; zero: none is
}

type changed struct {
	at   time.Time
	what string
}

// observe records the Services that a successful sync changes. The first sync changes
// none: its Services were there before.
func (h *history) observe(s *agent.Sync) {
	switch {
	case s.Err != nil:
		return
	case h.started.IsZero():
		h.started = s.Started
		return
	}
	names := s.Services()
	if len(names) > maxHistory {
		h.last, h.oldest = nil, s.Started
		return
	}
	what := describeChanges(s, names)
	if h.last == nil {
		h.last = make(map[model.ServiceName]changed)
	}
	for _, name := range names {
		text, ok := what[name]
		if !ok {
			text = fmt.Sprintf("changed, together with %d other Services", len(names)-1)
		}
		h.last[name] = changed{s.Started, text}
	}
	h.forget()
}

// forget removes the oldest half if there are too many.
func (h *history) forget() {
	if len(h.last) <= maxHistory {
		return
	}
	times := make([]time.Time, 0, len(h.last))
	for _, c := range h.last {
		times = append(times, c.at)
	}
	slices.SortFunc(times, time.Time.Compare)
	h.oldest = times[len(times)/2]
	for name, c := range h.last {
		if !c.at.After(h.oldest) {
			delete(h.last, name)
		}
	}
}

// describeChanges returns what changes for each Service, if these are few.
func describeChanges(s *agent.Sync, names []model.ServiceName) map[model.ServiceName]string {
	if len(names) == 0 || len(names) > maxDetailed {
		return nil
	}
	before, after := &model.Routing{}, &model.Routing{}
	now := &model.Snapshot{}
	for i := range s.Routes {
		if c := &s.Routes[i]; c.Differs() && !c.Frontend.IsEcho() {
			if c.Old != nil {
				before.Routes = append(before.Routes, *c.Old)
			}
			if c.New != nil {
				after.Routes = append(after.Routes, *c.New)
			}
		}
	}
	for _, r := range []*model.Routing{before, after} {
		slices.SortFunc(r.Routes, func(a, b model.Route) int { return a.Frontend.Compare(b.Frontend) })
	}
	if s.Router != nil {
		for _, name := range names {
			if v := s.Router.View(name); v != nil {
				now.Slices = append(now.Slices, v.Slices...)
			}
		}
	}
	out := make(map[model.ServiceName]string)
	for _, c := range changes.Objects(changes.Side{Snapshot: &model.Snapshot{}, Routing: before}, changes.Side{Snapshot: now, Routing: after}) {
		text := c.What()
		out[c.Name] = text[:min(len(text), maxWhat)]
	}
	return out
}

// of returns the last change of a Service; nil: there is none, as far as is known.
func (h *history) of(name model.ServiceName, now time.Time) *api.LastChange {
	c, ok := h.last[name]
	switch {
	case ok:
		return &api.LastChange{Time: onClock(now, c.at), What: c.what}
	case h.started.IsZero():
		return nil
	case h.oldest.IsZero():
		return &api.LastChange{What: fmt.Sprintf("not since this nftproxy started, %s ago", now.Sub(h.started).Round(time.Second))}
	}
	return &api.LastChange{What: fmt.Sprintf("not within the last %s", now.Sub(h.oldest).Round(time.Second))}
}
