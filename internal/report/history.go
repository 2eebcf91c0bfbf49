package report

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/words"
)

const (
	// maxHistory is how many Services have their last change remembered.
	maxHistory = 1024
	// maxDetailed is how many Services a sync may change so that each change is
	// described: that costs some microseconds for each.
	maxDetailed = 64
	// maxWhat is the longest description in bytes.
	maxWhat = 300

	maxChanges  = 100 // that are remembered
	maxTimes    = 256 // durations of syncs that are remembered
	maxNames    = 5   // Services that a change names
	maxRepaired = 5   // changes of a repair that are remembered
	maxErrorLen = 500 // bytes of an error
	// maxRoutes limits the changed routes whose Services are named: to collect these
	// must not delay a sync.
	maxRoutes = 10_000
)

// history has the last syncs of the agent, in bounded memory. The zero value is
// empty. It is safe for concurrent use.
type history struct {
	mu      sync.Mutex
	last    *api.Sync // nil: none yet
	good    bool      // one has succeeded
	repairs api.Interference

	services map[model.ServiceName]changed // the last change of those that changed last
	started  time.Time                     // end of the first sync; zero: none yet
	oldest   time.Time                     // no change after it is forgotten; zero: none is

	changes []api.Change // oldest first
	next    uint64       // number of the next change
	times   []time.Duration
	total   uint64
	failed  uint64
}

type changed struct {
	at   time.Time // start of the sync
	took time.Duration
	what string
	only netip.AddrPort // the endpoint of the ClusterIP; zero: none, or more than one
}

func (h *history) observe(s *agent.Sync) {
	c := changeOf(s)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = &api.Sync{Cause: c.Cause, Started: c.Time, Seconds: c.Seconds, Added: c.Added, Changed: c.Changed, Deleted: c.Deleted}
	h.total++
	if s.Err != nil {
		h.last.Error = s.Err.Error()
		h.failed++
	}
	h.good = h.good || s.Err == nil
	if len(h.times) == maxTimes {
		h.times = slices.Delete(h.times, 0, 1)
	}
	h.times = append(h.times, s.Duration)
	h.add(c)
	h.addRepair(s)
	h.addServices(s)
}

// state returns the last sync, or nil, and whether one has succeeded.
func (h *history) state() (last *api.Sync, good bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.good
}

// interference returns the changes of rules by other programs; nil: none.
func (h *history) interference(now time.Time) *api.Interference {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.repairs.Times == 0 {
		return nil
	}
	out := h.repairs
	out.Last = OnClock(now, out.Last)
	return &out
}

// addServices records the Services that a successful sync changes. The first sync changes
// none: its Services were there before.
func (h *history) addServices(s *agent.Sync) {
	switch {
	case s.Err != nil:
		return
	case h.started.IsZero():
		h.started = s.Started
		return
	}
	names := s.Services()
	if len(names) > maxHistory {
		h.services, h.oldest = nil, s.Started
		return
	}
	what := describeChanges(s, names)
	if h.services == nil {
		h.services = make(map[model.ServiceName]changed)
	}
	for _, name := range names {
		text, ok := what[name]
		if !ok {
			text = wordsOf(s).Sprintf("changed, together with %d other Services", len(names)-1)
		}
		h.services[name] = changed{at: s.Started, took: s.Duration, what: text}
	}
	h.addEndpoints(s)
	h.forget()
}

// wordsOf returns the words for all that a node serves after a sync.
func wordsOf(s *agent.Sync) words.Vocabulary {
	if s.Router == nil {
		return words.Kubernetes
	}
	return s.Router.Words()
}

// addEndpoints adds the endpoint of Services that have one.
func (h *history) addEndpoints(s *agent.Sync) {
	for i := range s.Routes {
		r := s.Routes[i].New
		if r == nil || r.Choice == nil || r.Kind != model.ClusterIP || len(r.Choice.Cluster) != 1 {
			continue
		}
		if c, ok := h.services[r.Service.Name]; ok && c.at.Equal(s.Started) {
			e := &r.Choice.Cluster[0]
			c.only = netip.AddrPortFrom(e.Host.Address, e.Port)
			h.services[r.Service.Name] = c
		}
	}
}

// forget removes the oldest half if there are too many.
func (h *history) forget() {
	if len(h.services) <= maxHistory {
		return
	}
	times := make([]time.Time, 0, len(h.services))
	for _, c := range h.services {
		times = append(times, c.at)
	}
	slices.SortFunc(times, time.Time.Compare)
	h.oldest = times[len(times)/2]
	for name, c := range h.services {
		if !c.at.After(h.oldest) {
			delete(h.services, name)
		}
	}
}

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
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.services[name]
	switch {
	case ok:
		out := &api.LastChange{Time: OnClock(now, c.at), What: c.what, AgeSeconds: now.Sub(c.at.Add(c.took)).Seconds()}
		if c.only.IsValid() {
			out.OnlyEndpoint = c.only.String()
		}
		return out
	case h.started.IsZero():
		return nil
	case h.oldest.IsZero():
		return &api.LastChange{What: fmt.Sprintf("not since this nftproxy started, %s ago", now.Sub(h.started).Round(time.Second))}
	}
	return &api.LastChange{What: fmt.Sprintf("not within the last %s", now.Sub(h.oldest).Round(time.Second))}
}

func (h *history) addRepair(s *agent.Sync) {
	if s.Err != nil || s.Plan == nil || s.Plan.Empty() || len(s.Interventions) == 0 && s.Cause != agent.Check {
		return
	}
	c := &h.repairs
	c.Times++
	c.Last, c.Changes, c.Process = s.Started, len(s.Plan.Changes), ""
	c.Differences = differences(s.Plan, maxRepaired)
	for _, i := range s.Interventions {
		if !i.Missed {
			c.Process = i.By.String()
		}
	}
}

// add records a change unless it is empty. A repeated error becomes part of
// the first one, so that it does not displace all others.
func (h *history) add(c api.Change) {
	var last *api.Change
	if n := len(h.changes); n > 0 {
		last = &h.changes[n-1]
	}
	switch {
	case c.Error == "" && c.Added+c.Changed+c.Deleted == 0 && (last == nil || last.Error == ""):
		return
	case c.Error != "" && last != nil && last.Error == c.Error:
		last.Time, last.Seconds, last.Repeated = c.Time, c.Seconds, last.Repeated+1
		last.Services, last.More = c.Services, c.More
		return
	}
	if len(h.changes) == maxChanges {
		h.changes = slices.Delete(h.changes, 0, 1)
	}
	h.next++
	c.Number = h.next
	h.changes = append(h.changes, c)
}

func changeOf(s *agent.Sync) api.Change {
	c := api.Change{Time: s.Started, Cause: s.Cause.String(), Seconds: s.Duration.Seconds()}
	if s.Plan != nil {
		c.Added, c.Changed, c.Deleted = s.Plan.Count(plan.Add), s.Plan.Count(plan.Replace), s.Plan.Count(plan.Delete)
	}
	c.Services, c.More = namesOf(s)
	if s.Err != nil {
		c.Error, _, _ = strings.Cut(s.Err.Error(), "\n") // the log has the stack of a panic
		c.Error = strings.ToValidUTF8(c.Error[:min(len(c.Error), maxErrorLen)], "")
	}
	return c
}

// namesOf returns the first Services that a sync changes, and the number of the others;
// none for the first sync, which changes what differs from the rules of an earlier run,
// and for a change of very many.
func namesOf(s *agent.Sync) (names []string, more int) {
	if s.Cause == agent.Start || len(s.Routes) > maxRoutes {
		return nil, 0
	}
	all := s.Services()
	for _, n := range all[:min(len(all), maxNames)] {
		names = append(names, n.String())
	}
	return names, len(all) - len(names)
}

func (h *history) read(s *api.Sample, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Changes = slices.Clone(h.changes)
	slices.Reverse(s.Changes)
	for i := range s.Changes {
		s.Changes[i].Time = OnClock(now, s.Changes[i].Time)
	}
	s.Syncs = summary(h.times)
	s.Syncs.Total, s.Syncs.Failed = h.total, h.failed
}

// summary returns the distribution of some durations, in the order of time.
func summary(times []time.Duration) api.Syncs {
	if len(times) == 0 {
		return api.Syncs{}
	}
	last := times[len(times)-1]
	sorted := slices.Sorted(slices.Values(times))
	// The smallest duration that at least that share does not exceed.
	quantile := func(percent int) float64 {
		return sorted[(len(sorted)*percent+99)/100-1].Seconds()
	}
	return api.Syncs{Recent: len(times), Last: last.Seconds(), P50: quantile(50), P90: quantile(90), P99: quantile(99), Max: sorted[len(sorted)-1].Seconds()}
}
