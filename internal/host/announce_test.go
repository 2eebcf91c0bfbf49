package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// announceLab is a node and a client on a link.
type announceLab struct {
	*netlab.Lab
	link, from string // interfaces of the node and the client
	mac, other string // theirs
}

func newAnnounceLab(t *testing.T) announceLab {
	t.Helper()
	l := announceLab{Lab: netlab.TestLab(t, 0)}
	route := func(h *netlab.Host, to netip.Addr) string {
		return strings.TrimSpace(output(t, h, "ip -o route get "+to.String()+" | sed 's/.* dev \\([^ ]*\\).*/\\1/'"))
	}
	mac := func(h *netlab.Host, link string) string {
		return strings.TrimSpace(output(t, h, "ip -o link show dev "+link+" | sed 's/.*link.ether \\([^ ]*\\).*/\\1/'"))
	}
	l.link, l.from = route(l.Node, l.Client.IPv4), route(l.Client, l.Node.IPv4)
	l.mac, l.other = mac(l.Node, l.link), mac(l.Client, l.from)
	return l
}

// do calls f on the node, with the index of the interface.
func (l announceLab) do(t *testing.T, f func(index int) error) {
	t.Helper()
	if err := l.Node.Do(func() error {
		_, links, err := Neighbourhood{}.List()
		if err != nil {
			return err
		}
		return f(links[l.link].Index)
	}); err != nil {
		t.Error(err)
	}
}

// listed returns what the node says about an address.
func (l announceLab) listed(t *testing.T, a netip.Addr) (is LinkAddress, on bool) {
	l.do(t, func(int) error {
		all, _, err := Neighbourhood{}.List()
		is, on = all[model.InterfaceAddress{Interface: l.link, Address: a}]
		return err
	})
	return is, on
}

// TestAnnounce: 10.33. A neighbour that knew the address at another machine uses this one at once, in
// both families; what is done already is no error.
func TestAnnounce(t *testing.T) {
	l := newAnnounceLab(t)
	for _, text := range []string{"203.0.113.10", "2001:db8:9::10"} {
		a := netip.MustParseAddr(text)
		l.Client.TestScript(t, `ip route replace "$1/$3" dev "$2"; ip neigh replace "$1" lladdr 02:00:00:00:00:99 dev "$2" nud reachable`, text, l.from, fmt.Sprint(a.BitLen()))
		l.do(t, func(index int) error { return Neighbourhood{}.Add(index, a) })
		l.do(t, func(index int) error { return Neighbourhood{}.Add(index, a) })
		netlab.Eventually(t, 20*time.Second, func() error {
			if is, on := l.listed(t, a); !on || is != (LinkAddress{Marked: true}) {
				return fmt.Errorf("%s: %+v, on the machine: %v", a, is, on)
			}
			return nil
		})
		l.do(t, func(int) error { return Neighbourhood{}.Announce(l.link, a) })
		netlab.Eventually(t, 20*time.Second, func() error {
			if knows := output(t, l.Client, "ip neigh show to "+text); !strings.Contains(knows, l.mac) {
				return fmt.Errorf("the client knows %q, want %s", knows, l.mac)
			}
			return nil
		})
		if err := l.Client.Ping(a, 20*time.Second); err != nil {
			t.Error(err)
		}
		l.do(t, func(index int) error { return Neighbourhood{}.Remove(index, a) })
		l.do(t, func(index int) error { return Neighbourhood{}.Remove(index, a) })
		if _, on := l.listed(t, a); on {
			t.Errorf("%s is left", a)
		}
	}
	if err := (Neighbourhood{}).Announce("no-such-link", netip.MustParseAddr("203.0.113.10")); err == nil {
		t.Error("an interface that is not there is no error")
	}
	if is, on := l.listed(t, l.Node.IPv4); on {
		t.Errorf("an IPv4 address with a network is listed: %+v", is)
	}
	if is, on := l.listed(t, l.Node.IPv6); !on || is != (LinkAddress{Network: true}) {
		t.Errorf("an IPv6 address with a network: %+v, on the machine: %v", is, on)
	}
}

// TestClaims: 10.33. What another machine says about an address is heard: its answer to a probe, its own
// probe, and its announcements; what this machine says is not. The kernel finds an IPv6 address at another
// machine.
func TestClaims(t *testing.T) {
	l := newAnnounceLab(t)
	l.Node.TestScript(t, `ip link set dev "$1" address 02:00:00:00:00:02; cd "/proc/sys/net/ipv6/conf/$1"; echo 1 >accept_dad; echo 1 >dad_transmits`, l.link)
	l.Client.TestScript(t, `ip link set dev "$1" address 02:00:00:00:00:01`, l.from)
	l.other = "02:00:00:00:00:01" // of two that probe, the lower one gets the address
	heard := make(chan Claim, 100)
	var ended atomic.Bool
	a, b := netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:9::10")
	l.do(t, func(int) error {
		return Neighbourhood{}.Listen(t.Context(), l.link, func(c Claim) { heard <- c }, func() { ended.Store(true) })
	})
	// hears waits for a claim of the client; others, for example of its own addresses, do not count.
	hears := func(what string, a netip.Addr, probe bool) {
		t.Helper()
		netlab.Eventually(t, 20*time.Second, func() error {
			for len(heard) > 0 {
				if c := <-heard; c.Address == a && c.Probe == probe && c.MAC.String() == l.other {
					return nil
				}
			}
			return fmt.Errorf("%s: no claim of %s by %s heard", what, a, l.other)
		})
	}
	say := func(f func(string, netip.Addr) error, a netip.Addr) {
		t.Helper()
		if err := l.Client.Do(func() error { return f(l.from, a) }); err != nil {
			t.Fatal(err)
		}
	}
	say(Neighbourhood{}.Announce, a)
	hears("an announcement", a, false)
	say(Neighbourhood{}.Announce, b)
	hears("an advertisement", b, false)
	say(Neighbourhood{}.Probe, a)
	hears("a probe", a, true)
	l.Client.TestScript(t, `ip address add 203.0.113.10/32 dev "$1"; ip address add 2001:db8:9::10/128 dev "$1" nodad`, l.from)
	l.do(t, func(int) error { return Neighbourhood{}.Probe(l.link, a) })
	hears("an answer", a, false)
	l.do(t, func(index int) error { return Neighbourhood{}.Add(index, b) })
	netlab.Eventually(t, 20*time.Second, func() error {
		if is, on := l.listed(t, b); !is.Failed || !on {
			return fmt.Errorf("an address of another machine: %+v, on the machine: %v", is, on)
		}
		return nil
	})
	l.Node.TestScript(t, `ip link delete "$1"`, l.link)
	netlab.Eventually(t, 20*time.Second, func() error {
		if !ended.Load() {
			return errors.New("it listens on an interface that is gone")
		}
		return nil
	})
}

// TestParseClaims: what is no claim is none, however short.
func TestParseClaims(t *testing.T) {
	mac, a := net.HardwareAddr{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("203.0.113.10")
	for _, frame := range [][]byte{nil, arpRequest(mac, a.AsSlice(), a)[:41], append(arpRequest(mac, a.AsSlice(), a)[:15:15], make([]byte, 40)...)} {
		if c, ok := parseARP(frame); ok {
			t.Errorf("%x: %+v", frame, c)
		}
	}
	if c, ok := parseARP(arpRequest(mac, make([]byte, 4), a)); !ok || !c.Probe || c.Address != a || !slices.Equal(c.MAC, mac) {
		t.Errorf("a probe: %+v, %v", c, ok)
	}
	if c, ok := parseAdvertisement(neighbourAdvertisement(mac, netip.MustParseAddr("2001:db8::1"))[:77]); ok {
		t.Errorf("a short advertisement: %+v", c)
	}
}

func output(t *testing.T, h *netlab.Host, script string) string {
	t.Helper()
	out, err := h.Output("sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
