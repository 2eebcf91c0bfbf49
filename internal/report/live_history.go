package report

import (
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/plan"
)

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

// read adds the history to a sample.
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
