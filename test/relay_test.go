package test

import (
	"bufio"
	big "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

var relayVIP = map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("203.0.113.80"), model.IPv6: netip.MustParseAddr("2001:db8:80::1")}

func relayed(f model.Family) netip.AddrPort { return netip.AddrPortFrom(relayVIP[f], 80) }

// relay writes a Balance with relay, with these servers and further fields.
func (w *ward) relay(servers []netip.AddrPort, fields ...string) {
	w.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "kind: Balance\nname: web\nlisten: [%q, %q]\nbackends:\n", relayed(model.IPv4), relayed(model.IPv6))
	for _, s := range servers {
		fmt.Fprintf(&b, "- %q\n", s)
	}
	if !strings.Contains(strings.Join(fields, "\n"), "relay:") {
		fields = append(fields, "relay: true")
	}
	next := w.file + ".new"
	if err := os.WriteFile(next, []byte(b.String()+strings.Join(fields, "\n")+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(next, w.file); err != nil {
		w.t.Fatal(err)
	}
}

// onPods returns the servers on some pods, in both families.
func onPods(pods ...*netlab.Host) (out []netip.AddrPort) {
	for _, p := range pods {
		out = append(out, netip.AddrPortFrom(p.IPv4, echoPort), netip.AddrPortFrom(p.IPv6, echoPort))
	}
	return out
}

// relays waits until clients reach one of these.
func (w *ward) relays(names ...string) {
	w.t.Helper()
	for _, f := range model.Families {
		eventually(w.t, func() error {
			a, err := w.Client.Ask("tcp", relayed(f), silence)
			if err == nil && !strings.Contains(strings.Join(names, " "), a.Name) {
				err = fmt.Errorf("answered by %s, want %v", a.Name, names)
			}
			return err
		})
	}
}

// TestRelay: 4.96, 4.97, 4.99. The relay serves clients and the machine itself in turn, in both
// families, and another server takes each connection that a dead one refuses or does not answer.
func TestRelay(t *testing.T) {
	w := newWard(t, 3)
	w.relay(onPods(w.Pods...))
	w.start()
	w.relays(w.Pods[0].Name, w.Pods[1].Name, w.Pods[2].Name)
	for _, f := range model.Families {
		for _, from := range []*netlab.Host{w.Client, w.Node} {
			got := count(names(t, 30, from, "tcp", relayed(f)))
			if len(got) != 3 || got[w.Pods[0].Name] != 10 || got[w.Pods[1].Name] != 10 {
				t.Errorf("%s from %s: %v, want 10 of each", f, from.Name, got)
			}
		}
		// Only what the rules redirect is relayed.
		at := netip.AddrPortFrom(w.Node.Address(f), model.RelayPort)
		if _, err := w.Client.Ask("tcp", at, 0); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			t.Errorf("%s: the port itself: %v, want a reset", f, err)
		}
		out := w.mustRun(0, exec.Command(binary, "explain", "tcp", relayed(f).String()))
		if !strings.Contains(out, "relayed") || !strings.Contains(out, "port 10245") || !strings.Contains(out, w.Pods[2].Address(f).String()) {
			t.Errorf("explain:\n%s", out)
		}
	}
	w.has([]string{"describe", "web"}, "nftproxy run relays the connections, at up to ten times the cost of rules")
	w.has([]string{"status", "-A"}, "relay")
	w.has([]string{"top", "--once"}, "relay 6")
	w.kill(w.Pods[0])
	w.silence(w.Pods[1])
	for _, f := range model.Families {
		if got := count(names(t, 6, w.Client, "tcp", relayed(f))); got[w.Pods[2].Name] != 6 {
			t.Errorf("%s: %v, want the server that is left", f, got)
		}
	}
	w.kill(w.Pods[2])
	w.relay(onPods(w.Pods[0], w.Pods[2]))
	w.page("/metrics", `nftproxy_relay_connections 0`, `nftproxy_relay_connections_total{result="not_relayed"} 2`)
	for _, f := range model.Families {
		eventually(t, func() error {
			if _, err := w.Client.Ask("tcp", relayed(f), silence); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
				return fmt.Errorf("without a server: %w, want a reset", err)
			}
			return nil
		})
	}
}

// TestRelayLocal: 4.96. Servers on the loopback addresses of the machine serve clients outside.
func TestRelayLocal(t *testing.T) {
	w := newWard(t, 0)
	loop := &netlab.Host{Namespace: w.Node.Namespace, Name: "loop", IPv4: loopback[model.IPv4], IPv6: loopback[model.IPv6]}
	w.revive(loop)
	defer w.kill(loop)
	w.relay(onPods(loop), "check: "+quickCheck)
	w.start()
	w.relays("loop")
	for _, f := range model.Families {
		if a := ask(t, w.Client, "tcp", relayed(f)); a.Client != loopback[f] {
			t.Errorf("%s: the server sees %s", f, a.Client)
		}
	}
}

// proxied is what a header of the PROXY protocol says.
type proxied struct{ client, dialled netip.AddrPort }

// readHeader reads a header, by the text of the specification (2.2 of proxy-protocol.txt).
func readHeader(r io.Reader) (p proxied, err error) {
	var start struct {
		Signature [12]byte
		Command   uint8
		Family    uint8
		Length    uint16
	}
	if err := big.Read(r, big.BigEndian, &start); err != nil {
		return p, err
	}
	if start.Signature != [12]byte{0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a} || start.Command != 0x21 {
		return p, fmt.Errorf("not a header: %v", start)
	}
	rest := make([]byte, start.Length)
	if _, err := io.ReadFull(r, rest); err != nil {
		return p, err
	}
	n := map[uint8]int{0x11: 4, 0x21: 16}[start.Family]
	if n == 0 || len(rest) != 2*n+4 {
		return p, fmt.Errorf("family %x with %d bytes", start.Family, len(rest))
	}
	from, _ := netip.AddrFromSlice(rest[:n])
	to, _ := netip.AddrFromSlice(rest[n : 2*n])
	p.client = netip.AddrPortFrom(from, big.BigEndian.Uint16(rest[2*n:]))
	p.dialled = netip.AddrPortFrom(to, big.BigEndian.Uint16(rest[2*n+2:]))
	return p, nil
}

// listen starts a server on a host, which answers each connection with do.
func (w *ward) listen(h *netlab.Host, port uint16, do func(*net.TCPConn)) (servers []netip.AddrPort) {
	w.t.Helper()
	for _, f := range model.Families {
		at := netip.AddrPortFrom(h.Address(f), port)
		l, err := h.Listen("tcp", at.String())
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { l.Close() })
		servers = append(servers, at)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					do(c.(*net.TCPConn))
				}()
			}
		}()
	}
	return servers
}

// TestRelayHeader: 4.98. The header has the client and the address that it dialled, in both
// families, and all data comes behind it.
func TestRelayHeader(t *testing.T) {
	w := newWard(t, 1)
	w.relay(w.listen(w.Pods[0], 9000, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		p, err := readHeader(in)
		line, _ := in.ReadString('\n')
		fmt.Fprintf(c, "%v %v %v %q\n", p.client, p.dialled, err, line)
	}), "relay: proxy-v2")
	w.start()
	for _, f := range model.Families {
		for _, from := range []*netlab.Host{w.Client, w.Node} {
			eventually(t, func() error {
				c, err := from.DialContext(t.Context(), "tcp", relayed(f).String())
				if err != nil {
					return err
				}
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // the read fails
				fmt.Fprintln(c, "hello")
				got, err := bufio.NewReader(c).ReadString('\n')
				if want := fmt.Sprintf("%v %v <nil> %q\n", c.LocalAddr(), relayed(f), "hello\n"); err != nil || got != want {
					return fmt.Errorf("%s from %s: %q, %w, want %q", f, from.Name, got, err, want)
				}
				return nil
			})
		}
	}
}

// TestRelayHalfClose: 4.96. The end of what a client sends reaches the server, which can answer
// then.
func TestRelayHalfClose(t *testing.T) {
	w := newWard(t, 1)
	const size = 1 << 20
	w.relay(w.listen(w.Pods[0], 9000, func(c *net.TCPConn) {
		n, err := io.Copy(io.Discard, c)
		fmt.Fprintf(c, "%d %v", n, err)
	}))
	w.start()
	for _, f := range model.Families {
		eventually(t, func() error {
			c, err := w.Client.DialContext(t.Context(), "tcp", relayed(f).String())
			if err != nil {
				return err
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // the read fails
			if _, err := c.Write(make([]byte, size)); err != nil {
				return err
			}
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				return err
			}
			got, err := io.ReadAll(c)
			if want := fmt.Sprintf("%d <nil>", size); err != nil || string(got) != want {
				return fmt.Errorf("%s: %q, %w, want %q", f, got, err, want)
			}
			return nil
		})
	}
}

// TestRelayMany: 4.99. A thousand connections at the same time, one after the other answered, and
// nothing is left of them.
func TestRelayMany(t *testing.T) {
	w := newWard(t, 2)
	w.relay(onPods(w.Pods...))
	d := w.start()
	w.relays(w.Pods[0].Name, w.Pods[1].Name)
	before := d.sockets(t)
	var flows []*netlab.Flow
	for i := range 1000 {
		flow, err := w.Client.Open("tcp", relayed(model.Families[i%2]), 0)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		flows = append(flows, flow)
	}
	for i, flow := range flows {
		if _, err := flow.Ask(); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	w.page("/metrics", "nftproxy_relay_connections 1000\n")
	for _, flow := range flows {
		flow.Close()
	}
	eventually(t, func() error {
		if n := d.sockets(t); n > before {
			return fmt.Errorf("%d sockets are open, %d before", n, before)
		}
		return nil
	})
}

// TestRelayLoop: 4.64. A connection that the server sends back to this machine ends, and leaves
// the others what they may have.
func TestRelayLoop(t *testing.T) {
	w := newWard(t, 1)
	pod := w.Pods[0]
	if err := pod.Do(func() error {
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	pod.NFT(t, fmt.Sprintf(`table inet back {
		chain pre { type nat hook prerouting priority -100; tcp dport 9000 dnat ip to %s; tcp dport 9000 dnat ip6 to %s; }
		chain post { type nat hook postrouting priority 100; masquerade; }
	}`, relayed(model.IPv4), relayed(model.IPv6)))
	w.relay([]netip.AddrPort{netip.AddrPortFrom(pod.IPv4, 9000), netip.AddrPortFrom(pod.IPv6, 9000)})
	d := w.start()
	for i, f := range model.Families {
		eventually(t, func() error {
			if _, err := w.Client.Ask("tcp", relayed(f), patience); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
				return fmt.Errorf("%s: %w, want a reset", f, err)
			}
			return nil
		})
		w.page("/metrics", fmt.Sprintf(`nftproxy_relay_connections_total{result="loop"} %d`, i+1), "nftproxy_relay_connections 0\n")
	}
	if !strings.Contains(d.log.String(), "they have passed too many relays") {
		t.Error("the log has no reason")
	}
}

// TestRelayEnds: 4.89, 4.76, 4.84, 12.86. Lists and limits of clients hold; a server that is drained
// keeps its connections, and with onFailure: close one that leaves does not; a new process serves
// as the last one.
func TestRelayEnds(t *testing.T) {
	w := newWard(t, 2)
	first, second := w.Pods[0], w.Pods[1]
	w.relay(onPods(first), "limits: {connections: 2}")
	d := w.start()
	w.relays(first.Name)
	open := func() (out []*netlab.Flow) {
		t.Helper()
		for _, f := range model.Families {
			flow, err := w.Client.Open("tcp", relayed(f), 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { flow.Close() })
			if _, err := flow.Ask(); err != nil {
				t.Fatal(err)
			}
			out = append(out, flow)
		}
		return out
	}
	flows := append(open(), open()...)
	w.has([]string{"describe", "web", "--connections", "-o", "json"}, `"openConnections": 2`)
	for _, f := range model.Families {
		if err := wantSilence(w.Client, "tcp", relayed(f)); err != nil {
			t.Errorf("a third connection: %v", err)
		}
	}
	w.relay(onPods(second), "deny: ["+w.Node.IPv4.String()+"]")
	w.relays(second.Name)
	if _, err := w.Node.Ask("tcp", netip.AddrPortFrom(relayVIP[model.IPv4], 80), silence); err == nil {
		t.Error("a denied client is served")
	}
	for _, flow := range flows {
		if a, err := flow.Ask(); err != nil || a.Name != first.Name {
			t.Errorf("a connection to a server that has left: %v, %v", a, err)
		}
		flow.Close()
	}
	w.relay(onPods(second), "onFailure: close")
	eventually(t, func() error { // the field is in force
		if out := w.mustRun(0, exec.Command(binary, "describe", "web")); !strings.Contains(out, "are closed") {
			return errors.New(out)
		}
		return nil
	})
	flows = open()
	w.relay(onPods(first), "onFailure: close")
	w.relays(first.Name)
	for _, flow := range flows {
		eventually(t, func() error { // new connections follow the change a moment before
			if _, err := flow.Ask(); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				return fmt.Errorf("a connection to a server that has left: %w, want a reset", err)
			}
			return nil
		})
	}
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = d.cmd.Wait()
	refused := func(when string) {
		t.Helper()
		for _, f := range model.Families {
			if _, err := w.Client.Ask("tcp", relayed(f), 0); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s %s: %v, want a refusal", f, when, err)
			}
		}
	}
	refused("after the end of the process")
	d = w.start()
	w.relays(first.Name)
	d.stop(t)
	refused("after the end of a second process")
	if out := w.mustRun(0, exec.Command(binary, "status")); !strings.Contains(out, "2 RelayPort: connections to Balances with relay are refused\n") || !strings.Contains(out, "start nftproxy run") {
		t.Errorf("status without a process:\n%s", out)
	}
	w.start()
	w.relays(first.Name)
	w.relay(onPods(first), "relay: false")
	eventually(t, func() error { // nothing listens any more
		_, err := w.Client.Ask("tcp", netip.AddrPortFrom(w.Node.IPv4, model.RelayPort), silence)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("the port of the relay: %w, want a refusal", err)
		}
		return nil
	})
	w.relays(first.Name)
	w.inSync() // nothing of the relay is left
}
