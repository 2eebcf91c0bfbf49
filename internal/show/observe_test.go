package show

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
)

// TestObserver: 17.5, 17.6, 17.7. What is missing between two answers has a line, and the advice
// of a reason comes once.
func TestObserver(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 3, 0, time.Local)
	event := func(reason string, at time.Time) api.Observation {
		return api.Observation{Time: at, Reason: reason, Ends: "dropped", Client: "10.1.0.7:4000", Pod: "shop/cart-1", Frontend: "[fd00::10]:80", Protocol: "tcp", Namespace: "shop", Service: "web", Port: "http"}
	}
	answers := []api.Observed{
		{Instance: "a", Time: now, Events: []api.Observation{event("denied", now.AddDate(0, 0, -1)), event("denied", now)}},
		{Instance: "a", Time: now, Missed: 1, Lost: 7, Error: "the group is taken", Since: now.Add(-2 * time.Second), Events: []api.Observation{event("x\x1b[2J", now)}},
		{Instance: "a", Time: now, Lost: 7, Error: "the group is taken"},
		{Instance: "b", Time: now, Lost: 2, Events: []api.Observation{event("denied", now), event("rate", now)}},
	}
	const client = "  10.1.0.7:4000 (shop/cart-1) -> [fd00::10]:80/tcp (shop/web:http)  "
	want := "2026-11-25 12:00:03" + client + `dropped, denied: the client is among the denied clients of the Service
                     remove its address from nftproxy.dev/denied-sources
12:00:03` + client + `dropped, denied: the client is among the denied clients of the Service
1 event is no longer kept: there were too many at once
7 events are lost: the kernel has dropped them, because they were not read fast enough
for 2s, events are not read: the group is taken
12:00:03` + client + `logged by a rule of another program: "x\x1b[2J"
nftproxy has started again; events in between are not known
2 events are lost: the kernel has dropped them, because they were not read fast enough
12:00:03` + client + `dropped, denied: the client is among the denied clients of the Service
12:00:03` + client + `dropped, rate: the connection rate of the Service is reached
          raise the limit, or find the client that opens so many
`
	var out strings.Builder
	o := NewObserver(&out, false)
	for i := range answers {
		if err := o.Add(&answers[i]); err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}

// TestUnreadEvents: 17.7. The first answer says why events are missing, also in a summary, and where others are named.
func TestUnreadEvents(t *testing.T) {
	now := time.Now()
	r := &api.Observed{Time: now, Total: 12, Lost: 3, Error: "the group is taken", Since: now.Add(-time.Minute), Sampled: 20, SampledFailed: 14, Minutes: 5}
	const unread = "\x1b[31mfor 1m0s, events are not read: the group is taken\x1b[0m\n"
	for _, c := range []struct {
		name  string
		print func(io.Writer) error
		want  string
	}{
		{"events", func(w io.Writer) error { return NewObserver(w, true).Add(r) }, unread},
		{"totals", func(w io.Writer) error { return NewObserver(w, true).Totals(r) }, "no event matches\n12 events since nftproxy started; 3 lost, because they were not read fast enough\n" +
			"\x1b[33m14 of 20 sampled connections to endpoints failed: \"nftproxy status\" and \"nftproxy describe\" name the endpoints\x1b[0m\n"},
		{"summary", func(w io.Writer) error { return Refused(w, r, true) }, unread + "refused in the last 5 minutes, of the samples that the rules log:\n  no event matches\n"},
	} {
		var out strings.Builder
		if err := c.print(&out); err != nil || out.String() != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, out.String(), err, c.want)
		}
	}
}
