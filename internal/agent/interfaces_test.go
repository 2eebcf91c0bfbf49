package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// machine is a node whose interfaces have some addresses, until they cannot be
// listed.
type machine struct {
	*fixture
	syncs     []Sync
	mu        sync.Mutex // guards these
	listed    int
	addresses []netip.Addr
	broken    error
}

func newMachine(addresses ...string) *machine {
	h := &machine{fixture: newFixture()}
	h.have(addresses...)
	h.fixture.addresses = func() ([]netip.Addr, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.listed++
		return slices.Clone(h.addresses), h.broken
	}
	h.observe = append(h.observe, func(s *Sync) { h.syncs = append(h.syncs, *s) })
	return h
}

// lists returns how many times addresses were listed.
func (m *machine) lists() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.listed
}

// fails sets why addresses cannot be listed; nil: they can.
func (m *machine) fails(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken = why
}

func (m *machine) have(addresses ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addresses = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	for _, a := range addresses {
		m.addresses = append(m.addresses, netip.MustParseAddr(a))
	}
}

// event is a notification of the kernel about an address.
func (m *machine) event(address string) {
	m.interfaces.Event(netip.MustParseAddr(address), m.agent.Node)
	synctest.Wait()
}

// nodePorts returns the addresses that serve NodePorts.
func (m *machine) nodePorts() string {
	var out []string
	routing := m.agent.Routing()
	for _, a := range routing.NodePortAddresses {
		if slices.ContainsFunc(routing.Routes, func(r model.Route) bool { return r.Frontend.Address == model.Wildcard(model.FamilyOf(a)) }) {
			out = append(out, a.String())
		}
	}
	return strings.Join(out, " ")
}

// TestAddressIsOneChange: 6.8, 13.12. An address that comes or goes is one change
// of the rules, and of no frontend; the source is not read again. One that serves
// no NodePorts changes nothing.
func TestAddressIsOneChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMachine("192.0.2.1")
		loads := 0
		h.load = func() (*model.Snapshot, error) { loads++; return snapshot(), nil }
		h.start(t)
		for _, c := range []struct {
			event  string
			have   []string
			listed int
			want   string // in the plan, with a sync
		}{
			{"192.0.2.2", []string{"192.0.2.1", "192.0.2.2"}, 2, "add element { 192.0.2.2 } of set ip nftproxy node-addresses"},
			{"169.254.1.1", []string{"192.0.2.1", "192.0.2.2", "169.254.1.1"}, 2, ""},
			{"fe80::1", []string{"192.0.2.1", "192.0.2.2", "169.254.1.1", "fe80::1"}, 2, ""},
			{"192.0.2.1", []string{"192.0.2.2", "169.254.1.1", "fe80::1"}, 3, "delete element { 192.0.2.1 } of set ip nftproxy node-addresses"},
			{"192.0.2.2", []string{"192.0.2.2", "169.254.1.1", "fe80::1"}, 4, "nothing"}, // on another interface
		} {
			h.have(c.have...)
			before := len(h.syncs)
			h.event(c.event)
			time.Sleep(addressPause)
			synctest.Wait()
			syncs := h.syncs[before:]
			if c.want == "" != (len(syncs) == 0) || len(syncs) > 1 {
				t.Fatalf("%s: %d syncs", c.event, len(syncs))
			}
			if h.lists() != c.listed {
				t.Errorf("%s: addresses were listed %d times, want %d", c.event, h.lists(), c.listed)
			}
			for _, s := range syncs {
				got := "nothing"
				for i := range s.Plan.Changes {
					got = s.Plan.Changes[i].Text()
				}
				if s.Compared || len(s.Routes) > 0 || len(s.Plan.Changes) > 1 || got != c.want {
					t.Errorf("%s: everything compared %t, %d routes and %d elements change, the last %q, want %q",
						c.event, s.Compared, len(s.Routes), len(s.Plan.Changes), got, c.want)
				}
			}
		}
		if got := h.nodePorts(); got != "192.0.2.2" {
			t.Errorf("NodePorts are served on %s", got)
		}
		if loads != 1 {
			t.Errorf("the source was read %d times", loads)
		}
	})
}

// TestListingFails: 6.10, where addresses cannot be listed those known last go on.
// It is tried again in growing intervals, without another event.
func TestListingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMachine("192.0.2.1", "192.0.2.2")
		h.start(t)
		h.fails(errors.New("too many open files"))
		h.have("192.0.2.2", "192.0.2.3")
		h.event("192.0.2.3")
		before := h.lists()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := h.nodePorts(); got != "192.0.2.1 192.0.2.2" {
			t.Errorf("NodePorts are served on %s", got)
		}
		if n := h.lists() - before; n < 20 || n > 35 {
			t.Errorf("addresses were listed %d times in ten minutes", n)
		}
		if n := strings.Count(h.log.String(), "too many open files"); n != 1 {
			t.Errorf("%d lines in the log: %s", n, h.log)
		}
		h.fails(nil)
		time.Sleep(DefaultSyncPeriod)
		synctest.Wait()
		if got := h.nodePorts(); got != "192.0.2.2 192.0.2.3" {
			t.Errorf("NodePorts are served on %s after addresses can be listed again", got)
		}
		before = h.lists()
		time.Sleep(40 * time.Minute)
		synctest.Wait()
		if h.lists() != before {
			t.Errorf("addresses were listed %d times without a reason", h.lists()-before)
		}
	})
}

// TestListingFailsAtStart: 6.10, the addresses of the Node object stand in until
// those of the interfaces are known.
func TestListingFailsAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMachine("192.0.2.2")
		h.load = func() (*model.Snapshot, error) {
			s := snapshot()
			s.Nodes = nodes
			return s, nil
		}
		h.fails(errors.New("too many open files"))
		h.start(t)
		if got := h.nodePorts(); got != "192.0.2.1" {
			t.Errorf("NodePorts are served on %s", got)
		}
		h.fails(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := h.nodePorts(); got != "192.0.2.2" {
			t.Errorf("NodePorts are served on %s", got)
		}
	})
}

// storm is an agent that follows the addresses of a namespace by the real
// kernel's notifications.
type storm struct {
	*fixture
	ns     *netlab.Namespace
	listed atomic.Int64

	mu           sync.Mutex // guards these
	syncs, whole int
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	s := &storm{fixture: newFixture(), ns: netlab.TestNamespace(t)}
	s.addresses = func() (out []netip.Addr, err error) {
		s.listed.Add(1)
		err = s.ns.Do(func() error { out, err = host.ServingAddresses(); return err })
		return out, err
	}
	s.observe = append(s.observe, func(sync *Sync) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.syncs++; sync.Compared {
			s.whole++
		}
	})
	s.make()
	if err := s.ns.Do(func() error { return s.interfaces.Watch(t.Context(), s.agent.Node) }); err != nil {
		t.Fatal(err)
	}
	s.background(t)
	s.until(t, func() bool { return !s.agent.State().LastSync.IsZero() })
	return s
}

func (s *storm) until(t *testing.T, done func() bool) {
	t.Helper()
	netlab.Eventually(t, time.Minute, func() error {
		if !done() {
			return errors.New("not yet")
		}
		return nil
	})
}

func (s *storm) serves(a netip.Addr) bool {
	return slices.Contains(s.agent.Routing().NodePortAddresses, a)
}

// TestAddressStorm makes ten thousand changes of addresses: none of them is a
// reason to compare everything, and addresses are listed in intervals, or not at
// all where they serve no NodePorts. An address that comes afterwards is served.
func TestAddressStorm(t *testing.T) {
	for _, c := range []struct {
		name, address string
		serves        bool
	}{
		{"link-local", "fe80::77/64", false},
		{"gateway of pods", "169.254.1.1/32", false},
		{"NodePorts", "192.0.2.7/32", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStorm(t)
			began := time.Now()
			if err := s.ns.Do(func() error { return churn(c.address, 5000) }); err != nil {
				t.Fatal(err)
			}
			s.until(t, func() bool { return s.serves(netip.MustParseAddr("192.0.2.9")) })
			most := int64(2)
			if c.serves {
				most += int64(time.Since(began)/addressPause) + 1
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			fmt.Fprintf(t.Output(), "%d listings and %d syncs in %v\n", s.listed.Load(), s.syncs, time.Since(began))
			if s.whole != 1 || s.listed.Load() > most {
				t.Errorf("%d full comparisons, want 1; %d listings, want %d at most", s.whole, s.listed.Load(), most)
			}
		})
	}
}

// churn adds and removes an address n times, and then adds 192.0.2.9.
func churn(address string, n int) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	last, err := netlink.ParseAddr("192.0.2.9/32")
	if err != nil {
		return err
	}
	for range n {
		if err := errors.Join(netlink.AddrAdd(lo, a), netlink.AddrDel(lo, a)); err != nil {
			return err
		}
	}
	return netlink.AddrAdd(lo, last)
}

// TestRangesFollowAddresses: 1.54. With a range of ports, every address of the node counts,
// also without ranges for NodePorts, and those known before the first range are listed
// again.
func TestRangesFollowAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMachine("192.0.2.1")
		plain, ranged := snapshot(), snapshot()
		s := *ranged.Services[0]
		s.External = &model.External{ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}}
		s.Extras = &model.Extras{Ranges: []model.PortRange{{ServicePort: model.ServicePort{Name: "10-20/udp", Protocol: model.UDP, Port: 10}, Last: 20}}}
		ranged.Services[0] = &s
		now := plain
		h.load = func() (*model.Snapshot, error) { return now, nil }
		h.make()
		h.agent.Node.NodePortAddresses = nil
		h.start(t)
		serves := func(when, want string) {
			t.Helper()
			time.Sleep(max(addressPause, h.agent.MinSyncPeriod))
			synctest.Wait()
			var got []string
			for _, r := range h.agent.Routing().Routes {
				if r.Kind == model.ExternalIP && r.Frontend.IsRange() {
					got = append(got, r.Frontend.Address.String())
				}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: ranges are served on %s, want %s", when, got, want)
			}
		}
		if h.lists() != 0 {
			t.Errorf("addresses were listed %d times without a range", h.lists())
		}
		now = ranged
		h.agent.Changed()
		serves("a range", "192.0.2.2")
		h.have("192.0.2.1", "192.0.2.2")
		h.event("192.0.2.2")
		serves("one more address", "")
		h.have()
		h.event("192.0.2.1")
		serves("no address", "192.0.2.1 192.0.2.2")
		now = plain
		h.agent.Changed()
		serves("no range", "")
		h.have("192.0.2.2")
		h.event("192.0.2.2")
		now = ranged
		h.agent.Changed()
		serves("a range again", "192.0.2.1")
	})
}
