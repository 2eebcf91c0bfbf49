package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

const echoPort = 8080

func newLab(t *testing.T, pods int) *Lab {
	t.Helper()
	l := TestLab(t, pods)
	if err := l.AddRemotePods(2); err != nil {
		t.Fatal(err)
	}
	for _, p := range everyone(l) {
		e, err := p.Echo(echoPort)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
	}
	return l
}

func everyone(l *Lab) []*Host {
	return slices.Concat([]*Host{l.Node, l.Client}, l.Pods, l.Remote)
}

// forEachFlow runs a test over the protocols and families.
func forEachFlow(t *testing.T, f func(t *testing.T, network string, family model.Family)) {
	for _, family := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			t.Run(fmt.Sprint(network, " ", family), func(t *testing.T) { f(t, network, family) })
		}
	}
}

func TestEveryHostReachesEveryOther(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	hosts := everyone(l)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for _, from := range hosts {
			for _, to := range hosts {
				got, err := from.Ask(network, netip.AddrPortFrom(to.Address(family), echoPort), 0)
				if err != nil {
					t.Errorf("from %s to %s: %v", from.Name, to.Name, err)
					continue
				}
				// The node talks to pods from the address on their side.
				sourceOK := got.Client == from.Address(family) || from == l.Node && l.IsNode(got.Client)
				if got.Name != to.Name || !sourceOK {
					t.Errorf("from %s to %s: got %+v", from.Name, to.Name, got)
				}
			}
		}
	})
}

// A neighbour that misses the first solicitation is asked again after a second.
// It happened in one laboratory of two hundred.
func TestNeighboursAnswerImmediately(t *testing.T) {
	t.Parallel()
	for range 100 {
		l := newLab(t, 1)
		to := netip.AddrPortFrom(l.Pods[0].IPv6, echoPort)
		if _, err := l.Client.Ask("udp", to, 0); err != nil {
			t.Fatal(err)
		}
		for _, h := range []*Host{l.Client, l.Node, l.Pods[0]} {
			if n := solicitations(t, h); n > 1 {
				t.Errorf("%s has asked %d times for its neighbour", h.Name, n)
			}
		}
	}
}

// solicitations returns how often a host has asked for a neighbour.
func solicitations(t *testing.T, h *Host) (n int) {
	t.Helper()
	var counters []byte
	if err := h.Do(func() (err error) { counters, err = os.ReadFile("/proc/thread-self/net/snmp6"); return err }); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(counters)) {
		if _, err := fmt.Sscanf(line, "Icmp6OutNeighborSolicits %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no number of solicitations in\n%s", counters)
	return 0
}

// A datagram to an address that was just added is answered. On a busy machine,
// the kernel takes long enough to add the route that one of a few is lost.
func TestAddedAddressIsUsable(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0)
	for i := range 200 {
		a := netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 5: 18, 15: byte(i)})
		if err := l.Client.AddAddress(a); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Node.Ask("udp", netip.AddrPortFrom(a, 1), 0); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("address %d: got %v, want ECONNREFUSED", i, err)
		}
	}
}

// A pod that dials itself through the node: what a bridge without hairpin
// ports gets wrong.
func TestHairpin(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	nft(t, l.Node, `
table inet test {
	chain prerouting {
		type nat hook prerouting priority dstnat
		ip daddr 10.0.0.1 dnat ip to 10.128.0.2
		ip6 daddr fd00::1 dnat ip6 to fd00:10:128::2
	}
	chain postrouting {
		type nat hook postrouting priority srcnat
		ct status dnat masquerade fully-random
	}
}`)
	vip := map[model.Family]netip.Addr{
		model.IPv4: netip.MustParseAddr("10.0.0.1"), model.IPv6: netip.MustParseAddr("fd00::1")}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		got, err := l.Pods[0].Ask(network, netip.AddrPortFrom(vip[family], echoPort), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got.Name != "pod-0" || !l.IsNode(got.Client) {
			t.Errorf("got %+v, want pod-0 and an address of the node", got)
		}
	})
}

func TestRefusedAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for range 10 {
			_, err := l.Client.Ask(network, netip.AddrPortFrom(l.Node.Address(family), 1), 0)
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("got %v, want ECONNREFUSED", err)
			}
		}
	})
}

func TestAliasIsTheSource(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	alias, err := l.Client.Alias(netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8:18::1"))
	if err != nil {
		t.Fatal(err)
	}
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		got, err := alias.Ask(network, netip.AddrPortFrom(l.Pods[0].Address(family), echoPort), 0)
		if err != nil || got.Client != alias.Address(family) {
			t.Errorf("got %+v, %v, want a client at %s", got, err, alias.Address(family))
		}
	})
}

func TestPing(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	nft(t, l.Pods[0], `
table inet test {
	chain input {
		type filter hook input priority 0
		meta l4proto { icmp, icmpv6 } ct state new reject with icmpx port-unreachable
	}
}`)
	for _, family := range model.Families {
		if err := l.Pods[0].Ping(l.Client.Address(family), timeout); err != nil {
			t.Errorf("%s: %v", family, err)
		}
		if err := l.Client.Ping(l.Pods[0].Address(family), timeout); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: got %v, want ECONNREFUSED", family, err)
		}
	}
}

func TestProcessEndsWithNamespace(t *testing.T) {
	t.Parallel()
	n, err := NewNamespace()
	check(t, err)
	cmd := exec.Command("sleep", "60")
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("process ended with %v, want SIGKILL", err)
	}
}

func TestDoReturnsWhenFunctionExits(t *testing.T) {
	t.Parallel()
	n, err := NewNamespace()
	check(t, err)
	defer n.Close()
	// Runs in a goroutine of its own, whose end must not leave Do waiting.
	exited := make(chan error)
	go func() { exited <- n.Do(func() error { runtime.Goexit(); return nil }) }()
	if err := await.Receive(t, exited, "return of Do"); err == nil {
		t.Error("got no error")
	}
}

// nft loads a script in the namespace of a host.
func nft(t *testing.T, h *Host, script string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := h.Run(cmd); err != nil {
		t.Fatalf("nft: %v\n%s", err, out.String())
	}
}
