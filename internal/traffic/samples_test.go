package traffic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

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
	s := NewSamples(nil, nil, nil)
	fill(s, now, port, endpoint, outcomes...)
	return s
}

func fill(s *Samples, now time.Time, port model.PortName, endpoint string, outcomes ...conntrack.Outcome) {
	for _, o := range outcomes {
		s.count(&sample{at: now, port: port, endpoint: netip.MustParseAddrPort(endpoint), Connection: conntrack.Connection{Dialled: frontendEnd}}, o)
	}
}

const (
	answered   = conntrack.Answered
	refused    = conntrack.Refused
	unanswered = conntrack.Unanswered
)

// outcomeKernel answers each question about a connection with one outcome.
type outcomeKernel struct {
	outcome conntrack.Outcome
	err     error
	asked   [][]conntrack.Connection
	judged  []netip.AddrPort
}

func (k *outcomeKernel) EntriesOf(all []conntrack.Connection) ([]*conntrack.Entry, error) {
	k.asked = append(k.asked, all)
	entry := map[conntrack.Outcome]*conntrack.Entry{answered: {}, unanswered: {Flow: conntrack.Flow{Opening: true}}}[k.outcome]
	return slices.Repeat([]*conntrack.Entry{entry}, len(all)), k.err
}

func (k *outcomeKernel) CountsBytes() bool { return false }

func (k *outcomeKernel) Judge(to netip.AddrPort, _ conntrack.Outcome, _ time.Time) {
	k.judged = append(k.judged, to)
}

func (k *outcomeKernel) samples() *Samples { return NewSamples(k, k, slog.New(slog.DiscardHandler)) }

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
		s := (&outcomeKernel{outcome: unanswered}).samples()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		for i := range fewestFailures {
			time.Sleep(time.Second)
			client := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), uint16(40000+i))
			s.add(packetOf(client, frontendEnd), samplePort("web"))
			s.pass(packetOf(client, netip.MustParseAddrPort("10.1.2.2:8081")))
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

// packetOf returns the first packet of a connection, which is not tracked.
func packetOf(from, to netip.AddrPort) *nflog.Event {
	return &nflog.Event{Protocol: model.TCP, Source: from, Destination: to}
}

// TestLostSamples: 17.11, 17.13. A connection whose first packet was not seen behind the filters of the machine, and
// which has no entry, was lost there; not if a message about it may be missing, or if it has an entry. The
// connection that the kernel adds to messages is not needed, and tells connections of one client's port apart.
func TestLostSamples(t *testing.T) {
	client, endpoint := netip.MustParseAddrPort("192.0.2.7:4711"), netip.MustParseAddrPort("10.1.2.2:8081")
	web := samplePort("web")
	tracked := func(n *nflog.Event, dialled netip.AddrPort) *nflog.Event {
		n.Tracked, n.Flow = true, conntrack.Flow{Protocol: model.TCP, Client: client.Addr(), Dialled: dialled, Answers: endpoint, Returns: client}
		return n
	}
	for name, c := range map[string]struct {
		entry conntrack.Outcome // Refused: there is none
		more  func(*Samples)
		want  string // outcome; empty: the connection does not count
	}{
		"passed, answered":         {answered, func(s *Samples) { s.pass(packetOf(client, endpoint)) }, "answered"},
		"passed, refused":          {refused, func(s *Samples) { s.pass(packetOf(client, endpoint)) }, "refused"},
		"passed, tracked":          {refused, func(s *Samples) { s.pass(tracked(packetOf(client, endpoint), frontendEnd)) }, "refused"},
		"lost":                     {refused, func(s *Samples) {}, "dropped"},
		"another one passed":       {refused, func(s *Samples) { s.pass(tracked(packetOf(client, endpoint), endpoint)) }, "dropped"},
		"another client passed":    {refused, func(s *Samples) { s.pass(packetOf(endpoint, endpoint)) }, "dropped"},
		"lost, and tried again":    {refused, func(s *Samples) { s.add(packetOf(client, frontendEnd), web) }, "dropped"},
		"messages are lost":        {refused, func(s *Samples) { s.missed(1) }, ""},
		"messages were lost":       {refused, func(s *Samples) { s.missed(0) }, "dropped"},
		"it has an entry":          {unanswered, func(s *Samples) {}, ""},
		"passed, messages missing": {unanswered, func(s *Samples) { s.pass(packetOf(client, endpoint)); s.missed(9) }, "unanswered"},
	} {
		t.Run(name, func(t *testing.T) {
			k := &outcomeKernel{outcome: c.entry}
			s := k.samples()
			s.add(packetOf(client, frontendEnd), web)
			c.more(s)
			if s.judgeDue(time.Now().Add(patience)); len(s.of) > 0 || len(s.waiting) > 0 {
				t.Errorf("%d and %d samples are kept", len(s.of), len(s.waiting))
			}
			if want := [][]conntrack.Connection{{{Protocol: model.TCP, Client: client, Dialled: frontendEnd}}}; !cmp.Equal(k.asked, want, cmp.Comparer(func(a, b conntrack.Connection) bool { return a == b })) {
				t.Errorf("asked for %v, want %v", k.asked, want)
			}
			got, dropped := "", 0
			for _, total := range s.Totals() {
				for o, n := range total.Outcomes {
					if n > 0 {
						got += conntrack.Outcome(o).String()
					}
				}
			}
			if c.want == "dropped" {
				dropped = 1
			}
			if n, _ := s.DroppedOf(web, time.Now()); got != c.want || n != dropped {
				t.Errorf("%q, %d dropped, want %q", got, n, c.want)
			}
			if passed := c.want != "" && c.want != "dropped"; passed != slices.Equal(k.judged, []netip.AddrPort{endpoint}) {
				t.Errorf("judged %v", k.judged)
			}
		})
	}
}

// TestDroppedConnections: 17.12. A service port fails in a family when connections of that are lost, until one is not; its
// endpoints do not.
func TestDroppedConnections(t *testing.T) {
	now := time.Now()
	s := NewSamples(nil, nil, nil)
	add := func(name, dialled string, outcomes ...conntrack.Outcome) {
		for _, o := range outcomes {
			one := &sample{at: now, port: samplePort(name), Connection: conntrack.Connection{Dialled: netip.MustParseAddrPort(dialled)}}
			if o != conntrack.Dropped {
				one.endpoint = netip.MustParseAddrPort("10.1.2.2:8081")
			}
			s.count(one, o)
		}
	}
	const dropped = conntrack.Dropped
	add("web", "10.96.0.1:80", dropped, dropped, dropped)
	add("web", "[fd00::1]:80", answered, answered, answered)
	add("both", "10.96.0.2:80", dropped, dropped, dropped, dropped)
	add("both", "[fd00::2]:80", dropped, dropped, dropped)
	add("some", "10.96.0.3:80", dropped, dropped, answered, dropped, dropped, answered)
	add("later", "10.96.0.4:80", answered, dropped, dropped, dropped, dropped, dropped)
	add("few", "10.96.0.5:80", dropped, dropped)
	want := []Failure{
		{Outcome: dropped, Ports: []model.PortName{samplePort("both")}, Families: model.Families[:], Samples: 7, Failed: 7},
		{Outcome: dropped, Ports: []model.PortName{samplePort("later")}, Families: model.Families[:1], Samples: 6, Failed: 5},
		{Outcome: dropped, Ports: []model.PortName{samplePort("web")}, Families: model.Families[:1], Samples: 3, Failed: 3},
	}
	if diff := cmp.Diff(want, s.Failures(now)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestSamplesByMessages: 16.7. Samples are the connections that the rules choose, at each level; others of service ports
// that nothing serves are none.
func TestSamplesByMessages(t *testing.T) {
	client, endpoint := netip.MustParseAddrPort("192.0.2.7:4711"), netip.MustParseAddrPort("10.1.2.2:8081")
	for _, passage := range []string{model.SamplePrefix, model.ConnectionPrefix} {
		s := NewSamples(nil, nil, nil)
		c := NewCollector(Config{Samples: s, Connections: newCourse().Connections, Node: oneFrontend{}})
		take := func(prefix string, from, to netip.AddrPort) {
			n := packetOf(from, to)
			n.Prefix = []byte(prefix)
			c.take(n)
		}
		take(model.ChosenPrefix, client, frontendEnd)
		take(model.ChosenPrefix, netip.AddrPortFrom(client.Addr(), 1), endpoint) // of another program
		take(passage, client, endpoint)
		take(passage, netip.AddrPortFrom(client.Addr(), 2), endpoint) // not chosen
		if len(s.waiting) != 1 || s.waiting[0].endpoint != endpoint || s.waiting[0].port != samplePort("web") {
			t.Errorf("%s: samples %+v, want one that has passed", passage, s.waiting)
		}
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
	if len(s.counts) != 2 { // of the endpoint, and of the service port
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
	k := new(outcomeKernel)
	s := k.samples()
	s.waiting = []*sample{{at: now.Add(-patience)}, {at: now.Add(-patience / 2)}}
	if !s.judgeDue(now) || len(k.asked) != 1 || len(k.asked[0]) != 1 {
		t.Fatalf("asked %v, want the first one", k.asked)
	}
	if k.err = errors.New("no memory"); !s.judgeDue(now) || len(k.asked) != 1 {
		t.Fatalf("asked %v although none is due", k.asked)
	}
	if s.judgeDue(now.Add(patience)) || len(k.asked) != 2 {
		t.Fatalf("asked %v, want the second one", k.asked)
	}
}

// TestTotalsAreFew: Services beyond a limit are counted together.
func TestTotalsAreFew(t *testing.T) {
	now := time.Now()
	s := NewSamples(nil, nil, nil)
	for i := range budget.SampledServices + 2 {
		fill(s, now, samplePort(fmt.Sprint("web-", i)), "10.1.2.2:8081", answered)
	}
	got := s.Totals()
	if len(got) != budget.SampledServices+1 || got[0].Service.Name != "" || got[0].Outcomes[answered] != 2 {
		t.Errorf("%d totals, the first %+v, want 2 samples without a Service", len(got), got[0])
	}
}

// TestFailuresOfOneClient: 17.12. A failure says whether the connections of one client failed alone, a /64 of IPv6 being one;
// endpoints that fail for one client are a failure apart from those that fail for several, or for another one.
func TestFailuresOfOneClient(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		fails []string // client, endpoint and outcome
		want  string   // of each failure, how many endpoints, and whether one client fails
	}{
		"one client":                 {[]string{"192.0.2.1>10.1.2.2", "192.0.2.1>10.1.2.2", "192.0.2.1>10.1.2.2"}, "1 true"},
		"of three endpoints":         {[]string{"192.0.2.1>10.1.2.2 x3", "192.0.2.1>10.1.2.3 x3", "192.0.2.1>10.1.2.4 x3"}, "3 true"},
		"several":                    {[]string{"192.0.2.1>10.1.2.2 x2", "192.0.2.2>10.1.2.2"}, "1 false"},
		"another one was answered":   {[]string{"192.0.2.2>10.1.2.2", "192.0.2.2>10.1.2.2 ok", "192.0.2.1>10.1.2.2 x5"}, "1 true"},
		"one network":                {[]string{"fd00::1>fd01::1", "fd00::2>fd01::1", "fd00::9:1>fd01::1"}, "1 true"},
		"two networks":               {[]string{"fd00::1>fd01::1 x2", "fd00:0:0:1::1>fd01::1"}, "1 false"},
		"both families":              {[]string{"192.0.2.1>10.1.2.2 x3", "fd00::1>fd01::1 x3"}, "2 true"},
		"others, at other endpoints": {[]string{"192.0.2.1>10.1.2.2 x3", "192.0.2.2>10.1.2.3 x3"}, "1 true, 1 true"},
		"one, and several":           {[]string{"192.0.2.1>10.1.2.2 x3", "192.0.2.2>10.1.2.3 x2", "192.0.2.1>10.1.2.3"}, "1 true, 1 false"},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSamples(nil, nil, nil)
			for _, f := range c.fails {
				ends, how, _ := strings.Cut(f, " ")
				client, endpoint, _ := strings.Cut(ends, ">")
				n, outcome := 1, unanswered
				if how == "ok" {
					outcome = answered
				} else if how != "" {
					n = int(how[1] - '0')
				}
				for range n {
					s.count(&sample{at: now, port: samplePort("web"), endpoint: netip.AddrPortFrom(netip.MustParseAddr(endpoint), 80),
						Connection: conntrack.Connection{Client: netip.AddrPortFrom(netip.MustParseAddr(client), 4711), Dialled: frontendEnd}}, outcome)
				}
			}
			var got []string
			for _, f := range s.Failures(now) {
				got = append(got, fmt.Sprint(len(f.Endpoints), " ", f.OneClient()))
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("failures %q, want %q", got, c.want)
			}
		})
	}
}

// oneFrontend serves [frontendEnd].
type oneFrontend struct{ Node }

func (oneFrontend) PortOf(f model.Frontend) (model.PortName, bool) {
	return samplePort("web"), f.Address == frontendEnd.Addr()
}
