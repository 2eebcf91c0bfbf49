package traffic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
)

func samplePort(name string) model.PortName {
	return model.PortName{Service: model.ServiceName{Namespace: "shop", Name: name}, Port: "http"}
}

// samplesOf returns a collection whose kernel answers with the given outcomes, in turn.
func samplesOf(t *testing.T, now time.Time, port model.PortName, endpoint string, outcomes ...conntrack.Outcome) *Samples {
	t.Helper()
	s := NewSamples(nil, nil)
	fill(s, now, port, endpoint, outcomes...)
	return s
}

func fill(s *Samples, now time.Time, port model.PortName, endpoint string, outcomes ...conntrack.Outcome) {
	for _, o := range outcomes {
		s.count(&sample{at: now, of: served{port, netip.MustParseAddrPort(endpoint)}}, o)
	}
}

const (
	answered   = conntrack.Answered
	refused    = conntrack.Refused
	unanswered = conntrack.Unanswered
)

// TestFailures: 17.12. An endpoint fails when five samples in a row were not answered, or all of
// at least three, until one is.
func TestFailures(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		outcomes []conntrack.Outcome
		want     bool
		outcome  conntrack.Outcome
	}{
		"none":                  {},
		"too few":               {outcomes: []conntrack.Outcome{refused, refused}},
		"refused":               {outcomes: []conntrack.Outcome{refused, refused, refused}, want: true, outcome: refused},
		"unanswered":            {outcomes: []conntrack.Outcome{unanswered, refused, unanswered}, want: true, outcome: unanswered},
		"some are answered":     {outcomes: []conntrack.Outcome{refused, answered, refused, answered, refused}},
		"after many answers":    {outcomes: slices.Concat(slices.Repeat([]conntrack.Outcome{answered}, 300), slices.Repeat([]conntrack.Outcome{refused}, 5)), want: true, outcome: refused},
		"not yet":               {outcomes: slices.Concat(slices.Repeat([]conntrack.Outcome{answered}, 300), slices.Repeat([]conntrack.Outcome{refused}, 4))},
		"it answers again":      {outcomes: slices.Concat(slices.Repeat([]conntrack.Outcome{unanswered}, 90), []conntrack.Outcome{answered})},
		"counters have a limit": {outcomes: slices.Repeat([]conntrack.Outcome{refused}, 1<<17), want: true, outcome: refused},
	} {
		t.Run(name, func(t *testing.T) {
			got := samplesOf(t, now, samplePort("web"), "10.1.2.2:8081", c.outcomes...).Failures(now)
			if (len(got) == 1) != c.want || c.want && got[0].Outcome != c.outcome {
				t.Errorf("failures %+v, want one: %v, %s", got, c.want, c.outcome)
			}
		})
	}
}

// TestFailuresAreKnownSoon: 17.12. An endpoint is known to fail when the last of enough samples had its time to
// answer, and the next judgement came; not before.
func TestFailuresAreKnownSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSamples(func(all []conntrack.Connection) ([]conntrack.Outcome, error) {
			return slices.Repeat([]conntrack.Outcome{unanswered}, len(all)), nil
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		from, to := netip.MustParseAddrPort("192.0.2.2:40000"), netip.MustParseAddrPort("10.96.0.10:80")
		n := nflog.Event{Protocol: model.TCP, Source: from, Destination: to, Tracked: true,
			Flow: conntrack.Flow{Client: from.Addr(), Dialled: to, Answers: netip.MustParseAddrPort("10.1.2.2:8081")}}
		for range fewestFailures {
			time.Sleep(time.Second)
			s.add(&n, samplePort("web"))
		}
		for _, c := range []struct {
			wait time.Duration
			want int
		}{{patience - time.Millisecond, 0}, {judging, 1}} {
			time.Sleep(c.wait)
			synctest.Wait()
			if got := s.Failures(time.Now()); len(got) != c.want {
				t.Errorf("%s later: failures %+v, want %d", c.wait, got, c.want)
			}
		}
	})
}

// TestChosenSamples: 16.7. Where all connections are logged, samples are chosen of them: of each frontend and of
// all, over TCP, as many in a second as the rules would log. Where the rules log samples, none is chosen.
func TestChosenSamples(t *testing.T) {
	packet := func(n int, p model.Protocol) *nflog.Event {
		frontend := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}), 80)
		client := netip.MustParseAddrPort("192.0.2.7:4711")
		return &nflog.Event{
			Prefix: []byte(model.ConnectionPrefix), Protocol: p, Source: client, Destination: endpointEnd, Tracked: true,
			Flow: conntrack.Flow{Protocol: p, Client: client.Addr(), Dialled: frontend, Answers: endpointEnd, Returns: client},
		}
	}
	for _, sampling := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
			s := NewSamples(nil, nil)
			c := NewCollector(Config{
				Samples: s, Sampling: sampling, Connections: newCourse().Connections,
				Named: func(f model.Frontend) (model.PortName, bool) { return samplePort("web"), true },
			})
			want := 0
			check := func(more int) {
				t.Helper()
				if want += more; !sampling {
					want = 0
				}
				if len(s.waiting) != want {
					t.Errorf("%d samples, want %d", len(s.waiting), want)
				}
			}
			flood := func(n int, p model.Protocol) {
				for range 100 {
					c.take(packet(n, p))
				}
			}
			flood(1, model.UDP)
			check(0)
			flood(1, model.TCP)
			check(model.SamplesOfFrontend)
			c.take(packet(2, model.TCP)) // not hidden by the flood
			check(1)
			for n := range 1000 {
				flood(n, model.TCP)
			}
			check(model.SamplesOfAll - model.SamplesOfFrontend - 1)
			time.Sleep(time.Second)
			flood(1, model.TCP)
			check(model.SamplesOfFrontend)
		})
	}
}

// TestFailuresEnd: a minute after the last sample nothing fails, and nothing is kept.
func TestFailuresEnd(t *testing.T) {
	now := time.Now()
	s := samplesOf(t, now, samplePort("web"), "10.1.2.2:8081", refused, refused, refused)
	if got := s.Failures(now.Add(45 * time.Second)); len(got) != 1 {
		t.Errorf("after 45 s: %+v", got)
	}
	later := now.Add(time.Minute + partTime)
	if got := s.Failures(later); len(got) != 0 {
		t.Errorf("after a minute: %+v", got)
	}
	fill(s, later, samplePort("other"), "10.1.2.3:80", answered)
	if len(s.counts) != 1 {
		t.Errorf("%d counts are kept", len(s.counts))
	}
	want := []SampleTotal{
		{Service: samplePort("other").Service, Outcomes: [conntrack.Outcomes]uint64{answered: 1}},
		{Service: samplePort("web").Service, Outcomes: [conntrack.Outcomes]uint64{refused: 3}},
	}
	if got := s.Totals(); !slices.Equal(got, want) {
		t.Errorf("totals %v, want %v", got, want)
	}
}

// TestFailuresTogether: endpoints of the same service ports are one failure, and so is an
// endpoint of several.
func TestFailuresTogether(t *testing.T) {
	now := time.Now()
	s := samplesOf(t, now, samplePort("web"), "10.1.2.2:8081", refused, refused, refused)
	fill(s, now, samplePort("web"), "10.1.2.3:8081", refused, refused, refused, refused)
	for _, name := range []string{"b", "a"} {
		fill(s, now, samplePort(name), "10.1.2.9:80", unanswered, unanswered, unanswered)
	}
	got := s.Failures(now)
	if len(got) != 2 {
		t.Fatalf("%d failures, want 2: %+v", len(got), got)
	}
	if f := got[0]; f.Outcome != unanswered || len(f.Endpoints) != 1 || !slices.Equal(f.Ports, []model.PortName{samplePort("a"), samplePort("b")}) || f.Samples != 6 {
		t.Errorf("the endpoint of two Services: %+v", f)
	}
	if f := got[1]; f.Outcome != refused || len(f.Endpoints) != 2 || f.Endpoints[0].String() != "10.1.2.2:8081" || f.Failed != 7 {
		t.Errorf("the Service of two endpoints: %+v", f)
	}
}

// TestSamplesWait: a sample is judged when the endpoint had its time to answer, and not lost
// for others if the kernel does not answer.
func TestSamplesWait(t *testing.T) {
	now := time.Now()
	var asked [][]conntrack.Connection
	var err error
	s := NewSamples(func(c []conntrack.Connection) ([]conntrack.Outcome, error) {
		asked = append(asked, c)
		return make([]conntrack.Outcome, len(c)), err
	}, slog.New(slog.DiscardHandler))
	s.waiting = []sample{{at: now.Add(-patience)}, {at: now.Add(-patience / 2)}}
	if !s.judge(now) || len(asked) != 1 || len(asked[0]) != 1 {
		t.Fatalf("asked %v, want the first one", asked)
	}
	if err = errors.New("no memory"); !s.judge(now) || len(asked) != 1 {
		t.Fatalf("asked %v although none is due", asked)
	}
	if s.judge(now.Add(patience)) || len(asked) != 2 {
		t.Fatalf("asked %v, want the second one", asked)
	}
}

// TestTotalsAreFew: Services beyond a limit are counted together.
func TestTotalsAreFew(t *testing.T) {
	now := time.Now()
	s := NewSamples(nil, nil)
	for i := range budget.SampledServices + 2 {
		fill(s, now, samplePort(fmt.Sprint("web-", i)), "10.1.2.2:8081", answered)
	}
	got := s.Totals()
	if len(got) != budget.SampledServices+1 || got[0].Service.Name != "" || got[0].Outcomes[answered] != 2 {
		t.Errorf("%d totals, the first %+v, want 2 samples without a Service", len(got), got[0])
	}
}
