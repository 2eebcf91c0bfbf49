package report

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/plan"
)

const (
	maxChanges  = 100 // that are remembered
	maxTimes    = 256 // durations of syncs that are remembered
	maxNames    = 5   // Services that a change names
	maxErrorLen = 500 // bytes of an error
	// maxRoutes limits the changed routes whose Services are named: to collect these
	// must not delay a sync.
	maxRoutes = 10_000
)

// syncHistory remembers recent syncs. It is safe for concurrent use.
type syncHistory struct {
	mu      sync.Mutex
	changes []api.Change // oldest first
	next    uint64       // number of the next change
	times   []time.Duration
	total   uint64
	failed  uint64
}

// observe records a sync.
func (h *syncHistory) observe(s *agent.Sync) {
	c := changeOf(s)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total++
	if s.Err != nil {
		h.failed++
	}
	if len(h.times) == maxTimes {
		h.times = slices.Delete(h.times, 0, 1)
	}
	h.times = append(h.times, s.Duration)
	h.add(c)
}

// add records a change unless it is empty. A repeated error becomes part of
// the first one, so that it does not displace all others.
func (h *syncHistory) add(c api.Change) {
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

// read adds the history to a sample. onClock converts times.
func (h *syncHistory) read(s *api.Sample, onClock func(time.Time) time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Changes = slices.Clone(h.changes)
	slices.Reverse(s.Changes)
	for i := range s.Changes {
		s.Changes[i].Time = onClock(s.Changes[i].Time)
	}
	s.Syncs = summary(h.times)
	s.Syncs.Total, s.Syncs.Failed = h.total, h.failed
}

// summary returns the distribution of some durations, the last of which is the latest.
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
