package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

const (
	soakPause = 200 * time.Millisecond // between two requests of a client
	heldTCP   = 4                      // connections of a client that stay open
	heldUDP   = 2                      // sockets
	heldFor   = 200                    // requests of the client on average, then it opens another one
	resend    = time.Second            // after which a client resends a datagram without an answer
	// answerWait is how long a request may take, so that only what is lost takes
	// longer, however busy the machine is. A connection that begins while rules
	// are missing is lost permanently: connection tracking keeps it as it began.
	answerWait = 30 * time.Second
)

// source says which client address an endpoint must see.
type source string

const (
	itself   source = "itself"
	another  source = "another" // it is masqueraded
	whatever source = "whatever"
)

// soakLoad is clients that dial the services that must be served, over new
// connections and over connections that stay open.
type soakLoad struct {
	t       testing.TB
	gate    sync.RWMutex // held for reading by every request
	clients []*soakClient
	stop    chan struct{}
	running sync.WaitGroup
}

// soakClient is one source that dials one target.
type soakClient struct {
	*netlab.Host
	random
	to   testbed.Target
	of   *servedService
	seen source
	held []*testbed.Flow
	last string // the pod that answered first, where it must stay the same

	fresh, refused, lasted testbed.Count
	resent                 int // datagrams
}

// startLoad starts clients outside of the cluster, one with an address of its own
// for each target, in pods that are no endpoints, and on the node itself.
func (s *soak) startLoad() {
	s.T.Helper()
	s.load = &soakLoad{t: s.T, stop: make(chan struct{})}
	for _, j := range s.served {
		for _, to := range s.dialled(j) {
			atClusterIP := to.To == j.Frontend(to.Family)
			outside := another
			if j.local && !atClusterIP {
				outside = itself
			}
			s.addClient(s.NewClient(len(s.load.clients)+1), to, j, outside)
			if !atClusterIP {
				continue
			}
			for _, p := range s.Pods[servedPods:] {
				s.addClient(p, to, j, itself)
			}
			s.addClient(s.nodeClient(), to, j, whatever)
		}
	}
	s.Client = s.NewClient(0)
	for _, c := range s.load.clients {
		s.load.running.Go(func() { s.load.run(c) })
	}
	s.T.Cleanup(s.load.end)
}

// nodeClient returns the node with addresses, and so with ports, of its own:
// health checks of Services need others.
func (s *soak) nodeClient() *netlab.Host {
	s.T.Helper()
	n := byte(len(s.load.clients))
	host, err := s.Node.Alias(netip.AddrFrom4([4]byte{198, 19, 0, n}), netip.MustParseAddr(fmt.Sprintf("2001:db8:19::%x", n)))
	if err != nil {
		s.T.Fatal(err)
	}
	return host
}

func (s *soak) addClient(from *netlab.Host, to testbed.Target, j *servedService, seen source) {
	n := uint64(len(s.load.clients))
	s.load.clients = append(s.load.clients, &soakClient{Host: from, random: random{rand.New(rand.NewPCG(s.seed, 1<<32+n))}, to: to, of: j, seen: seen})
}

// end stops the clients. The load can be ended again.
func (l *soakLoad) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.running.Wait()
}

func (l *soakLoad) run(c *soakClient) {
	defer c.hangUp()
	for {
		if !await.Pace(l.stop, soakPause/2+time.Duration(c.Int64N(int64(soakPause)))) {
			return
		}
		l.gate.RLock()
		if len(c.of.pods) == 0 {
			c.wantRefusal()
		} else {
			c.ask()
			c.askHeld()
		}
		l.gate.RUnlock()
	}
}

func (c *soakClient) hangUp() {
	for _, f := range c.held {
		f.Close()
	}
}

// wait returns how long each attempt may take.
func (c *soakClient) wait() time.Duration {
	if c.to.Network == "udp" {
		return resend
	}
	return answerWait
}

// dial opens a connection from a port that is free.
func (c *soakClient) dial() (f *netlab.Flow, err error) {
	for range 100 {
		if f, err = c.Open(c.to.Network, c.to.To, c.wait()); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return f, err
}

// exchange sends a request and waits for the answer. A datagram without an
// answer is sent again, as every client has to.
func (c *soakClient) exchange(f *netlab.Flow) (answer netlab.Answer, err error) {
	for begin := time.Now(); ; c.resent++ {
		answer, err = f.Ask()
		var netErr net.Error
		silent := errors.As(err, &netErr) && netErr.Timeout()
		if !silent || c.to.Network == "tcp" || time.Since(begin) > answerWait {
			return answer, err
		}
	}
}

// ask makes a request over a new connection, and may keep it open.
func (c *soakClient) ask() {
	begin := time.Now()
	f, err := c.dial()
	if err != nil {
		c.fresh.Add(time.Since(begin), err)
		return
	}
	answer, err := c.exchange(f)
	if err == nil {
		err = c.judge(answer)
	}
	c.fresh.Add(time.Since(begin), err)
	most := heldTCP
	if c.to.Network == "udp" {
		most = heldUDP
	}
	if err == nil && len(c.held) < most {
		c.held = append(c.held, &testbed.Flow{Flow: f, To: c.to, Peer: answer.Name})
		return
	}
	f.Close()
}

// judge checks which pod answered a new connection, and which client it saw.
func (c *soakClient) judge(a netlab.Answer) error {
	if !slices.ContainsFunc(c.of.pods, func(p *netlab.Host) bool { return p.Name == a.Name }) {
		return fmt.Errorf("answer of %s, which is no endpoint", a.Name)
	}
	if own := a.Client == c.Address(c.to.Family); own && c.seen == another || !own && c.seen == itself {
		return fmt.Errorf("%s sees %s, want %s", a.Name, a.Client, c.seen)
	}
	if c.of.sticky && c.last != "" && c.last != a.Name {
		return fmt.Errorf("answer of %s, not of %s as before", a.Name, c.last)
	}
	c.last = a.Name
	return nil
}

// askHeld makes a request over one of the open connections. It stays with its
// pod, even if that is no endpoint any more; a UDP socket then may be moved (9.4).
func (c *soakClient) askHeld() {
	if len(c.held) == 0 {
		return
	}
	i := c.IntN(len(c.held))
	f, begin := c.held[i], time.Now()
	answer, err := c.exchange(f.Flow)
	if moves := c.to.Network == "udp" && c.of.scaled; err == nil && answer.Name != f.Peer && !moves {
		err = fmt.Errorf("answer of %s", answer.Name)
	}
	if err != nil {
		err = fmt.Errorf("connection with %s: %w", f.Peer, err)
	}
	if c.lasted.Add(time.Since(begin), err); err != nil || c.oneIn(heldFor) {
		f.Close()
		c.held = slices.Delete(c.held, i, i+1)
	}
}

func (c *soakClient) wantRefusal() {
	begin := time.Now()
	f, err := c.dial()
	var answer netlab.Answer
	if err == nil {
		defer f.Close()
		answer, err = c.exchange(f)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		c.refused.Add(time.Since(begin), nil)
		return
	}
	c.refused.Add(time.Since(begin), fmt.Errorf("got %v, %v, want ECONNREFUSED", answer, err))
}

// totals returns the number of all requests, and of those that were lost.
func (l *soakLoad) totals() (requests, lost int) {
	l.gate.Lock()
	defer l.gate.Unlock()
	for _, c := range l.clients {
		for _, n := range []*testbed.Count{&c.fresh, &c.refused, &c.lasted} {
			requests, lost = requests+n.Requests, lost+len(n.Failures)
		}
	}
	return requests, lost
}

// check puts the record of the load in the log, and fails the test if a request
// did not get what it must.
func (l *soakLoad) check() {
	l.t.Helper()
	l.end()
	kinds, all := map[string]*testbed.Count{}, testbed.Count{}
	var failures strings.Builder
	resent := 0
	for _, c := range l.clients {
		if c.fresh.Requests+c.refused.Requests == 0 {
			l.t.Errorf("from %s to %s: no request was made", c.Name, c.to)
		}
		resent += c.resent
		for kind, n := range map[string]*testbed.Count{"new connections": &c.fresh, "refused": &c.refused, "open connections": &c.lasted} {
			for _, f := range n.Failures[:min(3, len(n.Failures))] {
				fmt.Fprintf(&failures, "    %s, %s, from %s to %s: %s\n", c.of.Name, kind, c.Name, c.to, f)
			}
			all.Sum(n)
			kind += ", " + c.to.Network
			if kinds[kind] == nil {
				kinds[kind] = &testbed.Count{}
			}
			kinds[kind].Sum(n)
		}
	}
	var table strings.Builder
	for _, kind := range []string{"new connections, tcp", "new connections, udp", "open connections, tcp", "open connections, udp", "refused, tcp", "refused, udp"} {
		n := kinds[kind]
		fmt.Fprintf(&table, "%-22s %8d requests, %d failed, slowest %v\n", kind, n.Requests, len(n.Failures), n.Slowest.Round(time.Microsecond))
	}
	fmt.Fprintf(l.t.Output(), "load: %d clients, %d requests, %d failed; %d datagrams were resent\n%s%s\n",
		len(l.clients), all.Requests, len(all.Failures), resent, &table, &failures)
	if len(all.Failures) > 0 {
		l.t.Errorf("%d of %d requests failed", len(all.Failures), all.Requests)
	}
}
