package nflog_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

const group = 28272

// rules log to the group what is sent to port 9 of the machine, and drop it. The counter has
// all packets.
const rules = `
ip link set lo up
ip addr add 192.0.2.1/32 dev lo
ip -6 addr add 2001:db8::1/128 dev lo
nft -f - <<END
table inet t {
	chain input {
		type filter hook input priority 0
		meta l4proto { tcp, udp } th dport 9 counter log prefix "denied" group ` + "28272" + ` drop
	}
}
END`

func namespace(t testing.TB) *netlab.Namespace {
	t.Helper()
	n := netlab.TestNamespace(t)
	n.TestScript(t, rules)
	// The kernel makes an IPv6 address local a moment after it was added, and drops packets to it until then.
	err := await.Poll(await.Patience, 10*time.Millisecond, func() error {
		if route, err := n.Output("ip", "route", "get", "2001:db8::1"); err != nil || !strings.HasPrefix(route, "local ") {
			return fmt.Errorf("2001:db8::1 is not local: %s%v", route, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func open(t testing.TB, n *netlab.Namespace, group uint16) (r *nflog.Reader) {
	t.Helper()
	if err := n.Do(func() (err error) { r, err = nflog.Open(group); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// send sends UDP packets to port 9 of an address, and returns their source.
func send(t testing.TB, n *netlab.Namespace, to string, packets int) (from netip.AddrPort) {
	t.Helper()
	err := n.Do(func() error {
		c, err := net.Dial("udp", net.JoinHostPort(to, "9"))
		if err != nil {
			return err
		}
		defer c.Close()
		from = c.LocalAddr().(*net.UDPAddr).AddrPort()
		for range packets {
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return from
}

// TestKernelEvents reads what rules log, of both families, with the addresses and ports of the
// packets.
func TestKernelEvents(t *testing.T) {
	n := namespace(t)
	r := open(t, n, group)
	var want []string
	for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
		from := send(t, n, to, 1)
		want = append(want, fmt.Sprintf("denied %d %s %s", model.UDP, from, netip.AddrPortFrom(netip.MustParseAddr(to), 9)))
		n.TestSYN(t, netip.AddrPortFrom(netip.MustParseAddr(to), 9))
		want = append(want, fmt.Sprintf("denied %d %s", model.TCP, netip.AddrPortFrom(netip.MustParseAddr(to), 9)))
	}
	var got []string
	read(t, r, func() bool { return len(got) >= len(want) }, func(e *nflog.Event) {
		text := fmt.Sprintf("%s %d %s %s", e.Prefix, e.Protocol, e.Client(), e.Dialled())
		if e.Protocol == model.TCP { // whose source port is not known
			text = fmt.Sprintf("%s %d %s", e.Prefix, e.Protocol, e.Dialled())
		}
		got = append(got, text)
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
	if r.Lost() != 0 {
		t.Errorf("%d packets are lost", r.Lost())
	}
}

// read reads until there is enough.
func read(t testing.TB, r *nflog.Reader, enough func() bool, f func(*nflog.Event)) {
	t.Helper()
	for !enough() {
		if err := await.Call(t, "message", func() { r.Close() }, func() error { return r.Read(f) }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKernelConnections: behind a translation, an event has the address that the client dialled
// and the endpoint, if the kernel adds connections.
func TestKernelConnections(t *testing.T) {
	n := namespace(t)
	n.TestScript(t, `
ip route add 10.96.0.0/16 dev lo
nft -f - <<END
table ip translate {
	chain output {
		type nat hook output priority -100
		ip daddr 10.96.0.10 udp dport 9 dnat to 192.0.2.1
	}
}
END`)
	r := open(t, n, group)
	from := send(t, n, "10.96.0.10", 1)
	text := ""
	read(t, r, func() bool { return text != "" }, func(e *nflog.Event) {
		endpoint, known := e.Endpoint()
		text = fmt.Sprintf("%s %s %s %t", e.Client(), e.Dialled(), endpoint, known)
	})
	want := fmt.Sprintf("%s 10.96.0.10:9 192.0.2.1:9 true", from)
	if !r.Connections {
		want = fmt.Sprintf("%s 192.0.2.1:9 invalid AddrPort false", from)
	}
	if text != want {
		t.Errorf("%s, want %s (connections: %t)", text, want, r.Connections)
	}
	t.Logf("connections: %t", r.Connections)
}

// TestKernelSlowReader: packets go on while the reader does not read, and it learns how many
// it has lost.
func TestKernelSlowReader(t *testing.T) {
	n := namespace(t)
	r := open(t, n, group)
	const packets = 40_000
	send(t, n, "192.0.2.1", 1)
	got := 0
	count := func(*nflog.Event) { got++ }
	read(t, r, func() bool { return got == 1 }, count)
	send(t, n, "192.0.2.1", packets)
	if out := n.NFT(t, "list", "table", "inet", "t"); !strings.Contains(out, fmt.Sprintf("counter packets %d ", packets+1)) {
		t.Errorf("not all packets have passed the rule:\n%s", out)
	}
	sent := uint64(packets + 1)
	// A packet whose message is not dropped shows the loss of the ones before.
	read(t, r, func() bool {
		if uint64(got)+r.Lost() >= sent {
			return true
		}
		send(t, n, "192.0.2.1", 1)
		sent++
		return false
	}, count)
	if uint64(got)+r.Lost() != sent || r.Lost() == 0 || got < 1000 {
		t.Errorf("of %d packets, %d were read and %d are lost", sent, got, r.Lost())
	}
	t.Logf("of %d packets, %d were read and %d are lost", sent, got, r.Lost())
}

// TestKernelTaken: a group has one reader. The error names the other one, and groups do not
// disturb each other.
func TestKernelTaken(t *testing.T) {
	n := namespace(t)
	first := open(t, n, group)
	second := open(t, n, group+1)
	var taken *nflog.TakenError
	err := n.Do(func() error { _, err := nflog.Open(group); return err })
	if !errors.As(err, &taken) || taken.Group != group || taken.By.PID != os.Getpid() || taken.Port == 0 {
		t.Errorf("opened twice: %v", err)
	}
	got := 0
	send(t, n, "192.0.2.1", 3)
	read(t, first, func() bool { return got == 3 }, func(*nflog.Event) { got++ })
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	await.Until(t, func() error { // the kernel ends it in the background
		return n.Do(func() error {
			if ports, err := nflog.Ports(); err != nil || ports[group] != 0 {
				return fmt.Errorf("after its end: %v, %w", ports, err)
			}
			return nil
		})
	})
	open(t, n, group)
}

// TestKernelClose: Close ends a Read that waits.
func TestKernelClose(t *testing.T) {
	r := open(t, namespace(t), group)
	done := make(chan error)
	go func() { done <- r.Read(func(*nflog.Event) { t.Error("a packet") }) }()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, done, "end of a Read whose reader is closed"); err == nil {
		t.Error("a closed reader reads")
	}
}

// TestLoggers: reading a group does not make nflog the logger of the kernel's other messages.
func TestLoggers(t *testing.T) {
	n := namespace(t)
	loggers := func() string {
		out, err := n.Output("cat", "/proc/net/netfilter/nf_log")
		if err != nil {
			t.Fatal(err, out)
		}
		return out
	}
	before := loggers()
	open(t, n, group)
	if after := loggers(); after != before {
		t.Errorf("loggers before:\n%safter:\n%s", before, after)
	}
}

// BenchmarkRead measures the processor time for each packet that is there already, in the
// process and in the kernel on its behalf. The wait for the last ones does not count.
func BenchmarkRead(b *testing.B) {
	n := namespace(b)
	r := open(b, n, group)
	const packets = 4000 // which have room
	var used time.Duration
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		send(b, n, "192.0.2.1", packets)
		got := 0
		before := processorTime(b)
		b.StartTimer()
		read(b, r, func() bool { return got == packets }, func(*nflog.Event) { got++ })
		used += processorTime(b) - before
	}
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/packets, "cpu-ns/event")
}

// processorTime returns the time that this process has used.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
