package testbed

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const (
	// Silence is how long a test waits before it counts an answer as missing.
	// Answers take less than a millisecond in the laboratory.
	Silence = 300 * time.Millisecond
	// Patience is how long a test waits for what must come. The slowest is a start
	// with 100,000 Services beside other work: a minute, on two processors.
	Patience = 5 * time.Minute
)

// Eventually waits until f returns nil.
func Eventually(t testing.TB, f func() error) {
	t.Helper()
	netlab.Eventually(t, Patience, f)
}

// forEachFlow runs f over the protocols and families.
func forEachFlow(f func(network string, family model.Family)) {
	for _, family := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			f(network, family)
		}
	}
}

// Served waits until new connections to a service go to pods in turn, and to
// no others.
func (c *Cluster) Served(s Service, pods ...*netlab.Host) {
	c.T.Helper()
	forEachFlow(func(network string, family model.Family) {
		c.T.Helper()
		Eventually(c.T, func() error { return Balanced(c.Client, network, s.Frontend(family), pods) })
	})
}

// Reached waits until new connections from outside go to these pods and to no
// others, in any order: other clients may connect at the same time.
func (c *Cluster) Reached(s Service, pods ...*netlab.Host) {
	c.T.Helper()
	for _, to := range c.Targets(s) {
		Eventually(c.T, func() error { return OnlyTo(c.Client, to, pods) })
	}
}

// OnlyTo makes connections, which must go to all of the pods and to no others.
// A random choice may miss a pod, though rarely; Eventually covers that too.
func OnlyTo(from *netlab.Host, to Target, pods []*netlab.Host) error {
	want, got := map[string]bool{}, map[string]bool{}
	for _, p := range pods {
		want[p.Name] = true
	}
	for range 8 * len(pods) {
		answer, err := from.Ask(to.Network, to.To, Strict) // what must come may take long on a busy machine
		if err != nil {
			return fmt.Errorf("from %s to %s: %w", from.Name, to, err)
		}
		got[answer.Name] = true
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("from %s to %s: answers of %v, want %v", from.Name, to, got, want)
	}
	return nil
}

// Refused waits until new connections to a service are refused.
func (c *Cluster) Refused(s Service) {
	c.T.Helper()
	for _, to := range c.Targets(s) {
		Eventually(c.T, func() error { return WantRefused(c.Client, to.Network, to.To) })
	}
}

// Silent waits until a pod gets no answer of any kind.
func (c *Cluster) Silent(s Service) {
	c.T.Helper()
	forEachFlow(func(network string, family model.Family) {
		c.T.Helper()
		Eventually(c.T, func() error { return WantSilence(c.Pods[0], network, s.Frontend(family)) })
	})
}

// Balanced makes connections, of which every len(pods) in a row must go to
// different pods.
func Balanced(from *netlab.Host, network string, to netip.AddrPort, pods []*netlab.Host) error {
	var want, got []string
	for _, p := range pods {
		want = append(want, p.Name)
	}
	for range 2 * len(pods) {
		answer, err := from.Ask(network, to, Silence)
		if err != nil {
			return fmt.Errorf("from %s to %s %s: %w", from.Name, network, to, err)
		}
		got = append(got, answer.Name)
	}
	for i := range len(pods) + 1 {
		window := slices.Sorted(slices.Values(got[i : i+len(pods)]))
		if !slices.Equal(window, want) {
			return fmt.Errorf("from %s to %s %s: answers of %v, want %v in turn", from.Name, network, to, got, want)
		}
	}
	return nil
}

func WantRefused(from *netlab.Host, network string, to netip.AddrPort) error {
	answer, err := from.Ask(network, to, Silence)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("from %s to %s %s: got %v, %v, want ECONNREFUSED", from.Name, network, to, answer, err)
	}
	return nil
}

func WantSilence(from *netlab.Host, network string, to netip.AddrPort) error {
	answer, err := from.Ask(network, to, Silence)
	var netErr net.Error
	if !errors.As(err, &netErr) || !netErr.Timeout() {
		return fmt.Errorf("from %s to %s %s: got %v, %v, want a timeout", from.Name, network, to, answer, err)
	}
	return nil
}

// Flow is an open connection, or a datagram socket in use.
type Flow struct {
	*netlab.Flow
	To   Target
	Peer string // the endpoint that answered first
}

// OpenFlows opens a flow to each target of a service.
func (c *Cluster) OpenFlows(s Service) []Flow {
	c.T.Helper()
	var flows []Flow
	for _, to := range c.Targets(s) {
		flows = append(flows, open(c.T, c.Client, to))
	}
	return flows
}

// Only returns the flows of a protocol.
func Only(network string, flows []Flow) []Flow {
	return slices.DeleteFunc(slices.Clone(flows), func(f Flow) bool { return f.To.Network != network })
}

// open opens a flow, which is closed at the end of the test.
func open(t testing.TB, from *netlab.Host, to Target) Flow {
	t.Helper()
	f, err := from.Open(to.Network, to.To, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	answer, err := f.Ask()
	if err != nil {
		t.Fatalf("from %s to %s: %v", from.Name, to, err)
	}
	return Flow{f, to, answer.Name}
}

// GoOn checks that flows are still with the endpoints that they began with.
func GoOn(t testing.TB, flows []Flow, when string) {
	t.Helper()
	for _, f := range flows {
		if got, err := f.Ask(); err != nil || got.Name != f.Peer {
			t.Errorf("%s, %s: got %v, %v, want an answer of %s", f.To, when, got, err, f.Peer)
		}
	}
}
