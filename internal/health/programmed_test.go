package health

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestProgrammed: 10.28. What the condition of the Node says, beside what /livez answers.
func TestProgrammed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		ago := func(d time.Duration) time.Time { return now.Add(-d) }
		for name, c := range map[string]struct {
			at        Progress
			inherited bool
			reason    string // empty: nothing is known
		}{
			"no rules at the start":             {Progress{Started: now, Pending: now}, false, NotSynced},
			"rules of an earlier run":           {Progress{Started: now, Pending: now}, true, ""},
			"such rules, and no sync in time":   {Progress{Started: ago(time.Minute), Pending: ago(time.Minute)}, true, NotSynced},
			"such rules, and not yet late":      {Progress{Started: ago(time.Minute), Pending: ago(59 * time.Second)}, true, ""},
			"synced":                            {Progress{Started: ago(time.Hour), LastSync: now}, false, RulesApplied},
			"synced, and a change waits":        {Progress{Started: ago(time.Hour), LastSync: ago(time.Hour), Pending: ago(59 * time.Second)}, true, RulesApplied},
			"synced, and a change waits longer": {Progress{Started: ago(time.Hour), LastSync: ago(time.Hour), Pending: ago(time.Minute)}, true, ChangesPending},
		} {
			p := newState().proxy()
			got, known := p.Programmed(c.at, c.inherited)
			if got.Reason != c.reason || known != (c.reason != "") || got.Yes != (c.reason == RulesApplied) || known != (got.Message != "") {
				t.Errorf("%s: %+v, %v; want %q", name, got, known, c.reason)
			}
			if healthy := p.healthyAt(now, c.at); got.Yes && !healthy {
				t.Errorf("%s: the Node is programmed, and /livez answers 503", name)
			}
		}
	})
}
