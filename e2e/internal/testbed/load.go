package testbed

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	// Pause is that of a client between two requests.
	Pause = 10 * time.Millisecond
	// Strict is how long a request may take that must be answered. It is
	// generous enough that only lost requests take longer; the log has the
	// slowest time.
	Strict = 5 * time.Second
)

// outcome is what a load expects of its requests.
type outcome string

const (
	Answers  outcome = "answers"
	Refusals outcome = "refusals"
	Anything outcome = "anything" // while it changes
)

// Load is clients outside of the cluster that dial a service without pause,
// each at one target: requests over a new connection or socket each, and
// requests over connections that stay open.
type Load struct {
	t       testing.TB
	gate    sync.RWMutex // held for reading by every request
	want    outcome      // of new connections; those that stay open must be answered
	clients []*client
	stop    chan struct{}
	running sync.WaitGroup
}

// client is one source address that dials one target.
type client struct {
	*netlab.Host
	to      Target
	lasting []Flow

	answered Count // new connections while answers are expected
	refused  Count // new connections while refusals are expected
	lasted   Count // requests over connections that stay open
}

// Count is the record of a kind of requests.
type Count struct {
	Requests int
	Failures []string
	Slowest  time.Duration
}

func (n *Count) Add(took time.Duration, failure error) {
	n.Requests++
	n.Slowest = max(n.Slowest, took)
	if failure != nil {
		n.Failures = append(n.Failures, time.Now().Format("15:04:05.000 ")+failure.Error())
	}
}

func (n *Count) String() string {
	s := fmt.Sprintf("%6d, %d failed, slowest %v\n", n.Requests, len(n.Failures), n.Slowest.Round(time.Microsecond))
	for _, f := range n.Failures[:min(5, len(n.Failures))] {
		s += "    " + f + "\n"
	}
	return s
}

// StartLoad starts clients for all targets of a service, which must be served.
func (c *Cluster) StartLoad(s Service) *Load {
	c.T.Helper()
	l := StartLoadOn(c.T, c.Targets(s), func(i int) *netlab.Host { return c.NewClient(i + 1) })
	// A port that is bound at no particular address is taken from all of them.
	c.Client = c.NewClient(0)
	return l
}

// StartLoadOn starts a client for each target, which must be served. from returns
// the host of the i-th client.
func StartLoadOn(t testing.TB, targets []Target, from func(i int) *netlab.Host) *Load {
	t.Helper()
	l := &Load{t: t, want: Answers, stop: make(chan struct{})}
	for i, to := range targets {
		l.clients = append(l.clients, &client{Host: from(i), to: to})
	}
	l.Hold(4)
	for _, cl := range l.clients {
		l.running.Go(func() { l.run(cl) })
	}
	t.Cleanup(l.end)
	return l
}

// NewClient returns the client with addresses, and so with ports, of its own.
func (c *Cluster) NewClient(n int) *netlab.Host {
	c.T.Helper()
	host, err := c.Client.Alias(netip.AddrFrom4([4]byte{198, 18, 0, byte(n)}),
		netip.MustParseAddr(fmt.Sprintf("2001:db8:18::%x", n)))
	if err != nil {
		c.T.Fatal(err)
	}
	return host
}

// Hold opens some more connections for each target, which stay open.
func (l *Load) Hold(n int) {
	l.t.Helper()
	l.gate.Lock()
	defer l.gate.Unlock()
	for _, cl := range l.clients {
		if cl.to.Network != "tcp" {
			continue // a UDP socket may be moved to another endpoint (9.4)
		}
		for range n {
			cl.lasting = append(cl.lasting, open(l.t, cl.Host, cl.to))
		}
	}
}

// Expect waits for the end of the requests under way, and says what the next
// ones must get.
func (l *Load) Expect(want outcome) {
	l.gate.Lock()
	defer l.gate.Unlock()
	l.want = want
}

// run makes requests until the end of the load.
func (l *Load) run(cl *client) {
	for i := 0; ; i++ {
		if !await.Pace(l.stop, Pause) {
			return
		}
		l.gate.RLock()
		l.ask(cl)
		if len(cl.lasting) > 0 {
			cl.askAgain(cl.lasting[i%len(cl.lasting)])
		}
		l.gate.RUnlock()
	}
}

// ask makes a request over a new connection.
func (l *Load) ask(cl *client) {
	wait, start := Strict, time.Now()
	if l.want == Anything {
		wait = Silence
	}
	answer, err := cl.Ask(cl.to.Network, cl.to.To, wait)
	took := time.Since(start)
	switch {
	case l.want == Answers:
		cl.answered.Add(took, err)
	case l.want == Refusals && errors.Is(err, syscall.ECONNREFUSED):
		cl.refused.Add(took, nil)
	case l.want == Refusals:
		cl.refused.Add(took, fmt.Errorf("got %v, %v, want ECONNREFUSED", answer, err))
	}
}

// askAgain makes a request over a connection that is open.
func (cl *client) askAgain(f Flow) {
	start := time.Now()
	answer, err := f.Ask()
	if err == nil && answer.Name != f.Peer {
		err = fmt.Errorf("answer of %s", answer.Name)
	}
	if err != nil {
		err = fmt.Errorf("connection with %s: %w", f.Peer, err)
	}
	cl.lasted.Add(time.Since(start), err)
}

// end stops the clients. The load can be ended again.
func (l *Load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.running.Wait()
}

// Check ends the load, puts its record in the log, and fails the test if a
// request did not get what it must.
func (l *Load) Check() {
	l.t.Helper()
	l.end()
	var table strings.Builder
	var requests, failures int
	for _, cl := range l.clients {
		for _, kind := range []struct {
			name string
			*Count
		}{{"answered", &cl.answered}, {"refused", &cl.refused}, {"over open connections", &cl.lasted}} {
			if kind.Requests == 0 {
				continue
			}
			fmt.Fprintf(&table, "%-28s %-22s %v", cl.to, kind.name, kind.Count)
			requests, failures = requests+kind.Requests, failures+len(kind.Failures)
		}
		if cl.answered.Requests == 0 {
			l.t.Errorf("%s: no request was made", cl.to)
		}
	}
	fmt.Fprintf(l.t.Output(), "load: %d requests, %d failed\n%s\n", requests, failures, &table)
	if failures > 0 {
		l.t.Errorf("%d of %d requests failed", failures, requests)
	}
}

// Totals returns the number of all requests so far, and of those that failed.
func (l *Load) Totals() (requests, failed int) {
	l.gate.Lock()
	defer l.gate.Unlock()
	for _, cl := range l.clients {
		for _, n := range []*Count{&cl.answered, &cl.refused, &cl.lasted} {
			requests, failed = requests+n.Requests, failed+len(n.Failures)
		}
	}
	return requests, failed
}

// Sum adds another record.
func (n *Count) Sum(o *Count) {
	n.Requests += o.Requests
	n.Failures = append(n.Failures, o.Failures...)
	n.Slowest = max(n.Slowest, o.Slowest)
}
