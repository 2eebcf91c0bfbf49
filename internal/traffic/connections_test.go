package traffic

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
)

var (
	clientEnd   = netip.MustParseAddrPort("192.0.2.7:4711")
	frontendEnd = netip.MustParseAddrPort("10.96.0.10:80")
	endpointEnd = netip.MustParseAddrPort("10.1.2.3:8080")
)

// logged is a message about a packet between client and endpoint.
func logged(toEndpoint, reset bool) *nflog.Event {
	if toEndpoint {
		return &nflog.Event{Protocol: model.TCP, Source: clientEnd, Destination: endpointEnd, Reset: reset}
	}
	return &nflog.Event{Protocol: model.TCP, Source: endpointEnd, Destination: clientEnd, Reset: reset}
}

// course is a collection whose kernel answers with one entry, at a time that the test chooses.
type course struct {
	*Connections
	entry  *conntrack.Entry
	counts bool
	err    error
	asked  int
	during func() // what happens while the kernel is asked; nil: nothing
	told   []string
}

func newCourse() *course {
	c := &course{}
	c.Connections = NewConnections(c, slog.New(slog.DiscardHandler))
	return c
}

func (c *course) EntriesOf(of []conntrack.Connection) ([]*conntrack.Entry, error) {
	c.asked += len(of)
	if during := c.during; during != nil {
		c.during = nil
		during()
	}
	return slices.Repeat([]*conntrack.Entry{c.entry}, len(of)), c.err
}

func (c *course) CountsBytes() bool { return c.counts }

// after lets a time pass and returns whether connections are still open.
func (c *course) after(d time.Duration) bool {
	time.Sleep(d)
	synctest.Wait()
	return c.judge(time.Now(), func(e *Event) { c.told = append(c.told, fmt.Sprint(e.Reason, " ", e.Duration)) })
}

// TestCourses: 17.16, 17.17. The reason of an event follows from who ended the connection first, and from
// its entry.
func TestCourses(t *testing.T) {
	answered := &conntrack.Entry{Flow: conntrack.Flow{Answered: true}}
	for name, c := range map[string]struct {
		entry               *conntrack.Entry
		ends, byClient, rst bool
		then                time.Duration
		want                string
		open                bool
	}{
		"client":                      {answered, true, true, false, time.Second, "[client-closed 1s]", false},
		"server":                      {answered, true, false, false, time.Second, "[server-closed 1s]", false},
		"client resets":               {answered, true, true, true, time.Second, "[client-reset 1s]", false},
		"server resets":               {answered, true, false, true, time.Second, "[server-reset 1s]", false},
		"endpoint refuses":            {nil, true, false, true, time.Second, "[endpoint-refused 1s]", false},
		"client gives up":             {&conntrack.Entry{}, true, true, true, time.Second, "[unanswered 1s]", false},
		"no answer":                   {&conntrack.Entry{}, false, false, false, patience, "[unanswered 2s]", false},
		"no entry":                    {nil, false, false, false, patience, "[unanswered 2s]", false},
		"open":                        {answered, false, false, false, patience, "[answered 2s]", true},
		"neither answered nor waited": {nil, false, false, false, time.Second, "[]", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newCourse()
				f.entry = c.entry
				f.begin(logged(true, false), frontendEnd, samplePort("web"))
				if c.ends {
					time.Sleep(c.then)
					f.end(logged(c.byClient, c.rst))
					f.end(logged(!c.byClient, true)) // the answer to the end
					c.then = judging
				}
				if open := f.after(c.then); open != c.open || fmt.Sprint(f.told) != c.want {
					t.Errorf("%s, open: %t; want %s, %t", f.told, open, c.want, c.open)
				}
			})
		})
	}
}

// TestWhoClosedFirst: 17.16. The connection in a message says who ended it first, if that segment had no
// message.
func TestWhoClosedFirst(t *testing.T) {
	for _, c := range []struct {
		closed        conntrack.Side
		byClient, rst bool
		want          string
	}{
		{conntrack.ClientSide, false, false, model.ClientClosed},
		{conntrack.EndpointSide, false, false, model.ServerClosed},
		{conntrack.ClientSide, false, true, model.ClientClosed},
		{conntrack.EndpointSide, true, true, model.ServerClosed},
		{conntrack.Neither, false, true, model.ServerReset},
		{conntrack.Neither, true, true, model.ClientReset},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newCourse()
			f.entry = &conntrack.Entry{Flow: conntrack.Flow{Answered: true}}
			f.begin(logged(true, false), frontendEnd, samplePort("web"))
			e := logged(c.byClient, c.rst)
			e.Tracked, e.Flow.ClosedBy = true, c.closed
			f.end(e)
			if f.after(judging); fmt.Sprint(f.told) != "["+c.want+" 0s]" {
				t.Errorf("%+v: %s", c, f.told)
			}
		})
	}
}

// TestLongConnection: 17.17. A connection that is open for long has an event when it was answered,
// and one at its end, or when connection tracking no longer has it.
func TestLongConnection(t *testing.T) {
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newCourse()
			f.entry = &conntrack.Entry{Flow: conntrack.Flow{Answered: true}}
			f.begin(logged(true, false), frontendEnd, samplePort("web"))
			f.after(patience)
			f.after(search / 2)
			f.after(search / 2)
			want := "[answered 2s expired 2m2s]"
			if ends {
				f.end(logged(false, false))
				f.after(judging)
				want = "[answered 2s server-closed 1m2s]"
			} else {
				f.entry = nil
				f.after(search)
			}
			if fmt.Sprint(f.told) != want || len(f.open) > 0 {
				t.Errorf("%s, %d open, want %s", f.told, len(f.open), want)
			}
		})
	}
}

// TestEndMeanwhile: 17.17. A connection that ends while the kernel is asked about it, as one that is open, has one
// event about its end.
func TestEndMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCourse()
		f.entry = &conntrack.Entry{Flow: conntrack.Flow{Answered: true}}
		f.begin(logged(true, false), frontendEnd, samplePort("web"))
		f.during = func() { f.end(logged(false, false)) }
		f.after(patience)
		f.after(judging)
		if want := "[server-closed 2s]"; fmt.Sprint(f.told) != want || len(f.open)+len(f.ended) > 0 {
			t.Errorf("%s, want %s", f.told, want)
		}
	})
}

// TestNeedlessQuestions: 17.17. A connection that has ended without a reset is looked up only for its bytes.
func TestNeedlessQuestions(t *testing.T) {
	for _, counts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newCourse()
			f.counts, f.entry = counts, &conntrack.Entry{Flow: conntrack.Flow{Answered: true}, Counted: true, Sent: 7}
			f.begin(logged(true, false), frontendEnd, samplePort("web"))
			other := logged(true, true)
			other.Source = netip.AddrPortFrom(clientEnd.Addr(), 4712)
			f.begin(other, frontendEnd, samplePort("web"))
			f.end(logged(false, false))
			f.end(other)
			want := map[bool]int{false: 1, true: 2}[counts]
			if f.after(judging); fmt.Sprint(f.told) != "[server-closed 0s client-reset 0s]" || f.asked != want {
				t.Errorf("%s after %d questions, want %d", f.told, f.asked, want)
			}
		})
	}
}

// TestPortsAreUsedAgain: 17.17. A connection whose client uses its port again at once has its event, as the
// later one has, and so has one whose end was not seen.
func TestPortsAreUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCourse()
		f.entry = &conntrack.Entry{Flow: conntrack.Flow{Answered: true}}
		for _, byClient := range []bool{true, false} {
			f.begin(logged(true, false), frontendEnd, samplePort("web"))
			f.end(logged(byClient, false))
			f.end(logged(!byClient, false))
		}
		f.begin(logged(true, false), frontendEnd, samplePort("web"))
		f.begin(logged(true, false), frontendEnd, samplePort("web"))
		f.after(patience)
		f.begin(logged(true, false), frontendEnd, samplePort("web"))
		f.end(logged(true, true))
		f.after(judging)
		if want := "[client-closed 0s server-closed 0s unanswered 0s answered 2s expired 2s client-reset 0s]"; fmt.Sprint(f.told) != want || len(f.open)+len(f.ended) > 0 {
			t.Errorf("%s, want %s", f.told, want)
		}
	})
}

// TestDialled: 17.18. Without the connection in its message, a packet is joined with the one before its
// translation, and no packet is joined twice.
func TestDialled(t *testing.T) {
	f := newCourse()
	before := logged(true, false)
	before.Destination = frontendEnd
	f.dial(before)
	for _, want := range []bool{true, false} {
		if to, ok := f.dialledBy(logged(true, false)); ok != want || ok && to != frontendEnd {
			t.Errorf("%s, %t; want %t", to, ok, want)
		}
	}
}

// TestFollowedHaveALimit: 17.18. Neither many connections nor many packets that never reach an endpoint
// take more than a bounded memory. What is not followed is counted.
func TestFollowedHaveALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCourse()
		for n := range 2 * MaxFollowed {
			e := logged(true, false)
			e.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)}), uint16(1+n>>16))
			f.dial(e)
			f.begin(e, frontendEnd, samplePort("web"))
		}
		if len(f.open) != MaxFollowed || len(f.dialled) != MaxFollowed || f.Skipped() != MaxFollowed {
			t.Errorf("%d open, %d dialled, %d skipped", len(f.open), len(f.dialled), f.Skipped())
		}
		time.Sleep(dialledTime + 1)
		f.dial(logged(true, false))
		if len(f.dialled) != 1 {
			t.Errorf("%d old packets are kept", len(f.dialled))
		}
		f.err = errors.New("no memory")
		if f.after(0); f.asked != MaxFollowed {
			t.Errorf("the kernel is asked %d times", f.asked)
		}
	})
}

// BenchmarkConnection measures what the daemon does for a connection that is served, besides reading
// its messages and asking the kernel.
func BenchmarkConnection(b *testing.B) {
	f := newCourse()
	f.entry = &conntrack.Entry{Flow: conntrack.Flow{Answered: true}}
	log, port := NewLog(), samplePort("web")
	n := 0
	for b.Loop() {
		e := logged(true, false)
		e.Source = netip.AddrPortFrom(clientEnd.Addr(), uint16(n))
		f.begin(e, frontendEnd, port)
		f.end(e)
		if n++; n%1000 == 0 {
			f.judge(time.Now().Add(judging), func(e *Event) { log.Add(e) })
		}
	}
}
