package test

import (
	encoding "encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// sourceAddresses are addresses that a node masquerades from.
var sourceAddresses = map[model.Family][]netip.Addr{
	model.IPv4: {netip.MustParseAddr("192.0.2.71"), netip.MustParseAddr("192.0.2.72")},
	model.IPv6: {netip.MustParseAddr("2001:db8:71::1"), netip.MustParseAddr("2001:db8:71::2")},
}

// addSources gives the node the addresses, and the pods their routes to it.
func (c *cluster) addSources() {
	c.t.Helper()
	for _, f := range model.Families {
		for _, a := range sourceAddresses[f] {
			if err := c.Node.AddAddress(a); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

// applyBalance applies a Balance at an address outside, of TCP and UDP.
func (c *cluster) applyBalance(more string, pods ...*netlab.Host) map[model.Family]netip.AddrPort {
	c.t.Helper()
	out := map[model.Family]netip.AddrPort{
		model.IPv4: netip.MustParseAddrPort("203.0.113.1:80"), model.IPv6: netip.MustParseAddrPort("[2001:db8:2::1]:80"),
	}
	var backends []string
	for _, f := range model.Families {
		for _, p := range pods {
			backends = append(backends, fmt.Sprintf("'%s'", endpointOf(p, f)))
		}
	}
	text := fmt.Sprintf("kind: Balance\nname: web\nlisten: ['%s', '%s']\nprotocol: tcp,udp\nbackends: [%s]\n%s",
		out[model.IPv4], out[model.IPv6], strings.Join(backends, ", "), more)
	c.applyText(text)
	return out
}

// TestMasqueradeFrom: 8.7, 8.8. Connections come from the addresses of the Balance, or of the node, in turn, over both
// families and protocols: of a client outside, of the node, and of the endpoint itself.
func TestMasqueradeFrom(t *testing.T) {
	list := fmt.Sprint(sourceAddresses[model.IPv4], sourceAddresses[model.IPv6])
	list = strings.NewReplacer("[", "", "]", "", " ", ",").Replace(strings.ReplaceAll(list, "] [", ","))
	for name, run := range map[string]struct {
		flags   []string
		balance string
	}{
		"node":    {[]string{"--masquerade-from", list}, ""},
		"Balance": {nil, "masqueradeFrom: [" + strings.ReplaceAll(list, ",", "', '") + "]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			c.addSources()
			c.flags = slices.Concat(c.flags, run.flags)
			if run.balance != "" {
				run.balance = strings.NewReplacer("[", "['", "]", "']").Replace(run.balance)
			}
			at := c.applyBalance(run.balance, c.Pods...)
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				for _, from := range []*netlab.Host{c.Client, c.Node, c.Pods[0]} {
					seen := make(map[netip.Addr]int)
					for range 10 {
						seen[ask(t, from, network, at[family]).Client]++
					}
					for _, a := range sourceAddresses[family] {
						if seen[a] != 5 {
							t.Errorf("from %s: %v, want each of %v five times", from.Name, seen, sourceAddresses[family])
						}
					}
				}
			})
		})
	}
}

// sourceCount counts the sources of datagrams to a port of a host.
type sourceCount struct {
	mu   sync.Mutex
	seen map[netip.AddrPort]bool
}

// countSources counts until the test ends.
func (c *cluster) countSources(h *netlab.Host, port uint16) *sourceCount {
	c.t.Helper()
	l, err := h.ListenPacket("udp", netip.AddrPortFrom(h.IPv4, port).String())
	if err == nil {
		err = largeBuffer(l.(*net.UDPConn))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	s := &sourceCount{seen: make(map[netip.AddrPort]bool)}
	var reads sync.WaitGroup
	reads.Go(func() {
		var buf [64]byte
		for {
			_, from, err := l.(*net.UDPConn).ReadFromUDPAddrPort(buf[:])
			if err != nil { // closed
				return
			}
			s.mu.Lock()
			s.seen[from] = true
			s.mu.Unlock()
		}
	})
	c.t.Cleanup(func() {
		l.Close()
		reads.Wait()
	})
	return s
}

func (s *sourceCount) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// of counts the ports of an address.
func (s *sourceCount) of(a netip.Addr) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for from := range s.seen {
		if from.Addr().Unmap() == a {
			n++
		}
	}
	return n
}

// rawPacket writes a datagram without data, or a SYN, with the header of IPv4.
func rawPacket(packet []byte, protocol model.Protocol, from, to netip.AddrPort) {
	clear(packet)
	packet[0], packet[8], packet[9] = 0x45, 64, byte(protocol) // the kernel fills in the length and the checksum
	copy(packet[12:], from.Addr().AsSlice())
	copy(packet[16:], to.Addr().AsSlice())
	encoding.BigEndian.PutUint16(packet[20:], from.Port())
	encoding.BigEndian.PutUint16(packet[22:], to.Port())
	if protocol == model.UDP {
		encoding.BigEndian.PutUint16(packet[24:], 8)
		return
	}
	const syn = 2
	packet[32], packet[33] = 5<<4, syn // and a checksum that is wrong
}

// rawLength is the length of these packets.
var rawLength = map[model.Protocol]int{model.UDP: 28, model.TCP: 40}

// sendFlows sends a packet from each of n source ports of a client, and waits after each burst until settled
// returns nil. A busy machine may drop packets from its queues: the burst is sent again while some are missing,
// which adds no flow.
func (c *cluster) sendFlows(client *netlab.Host, over model.Protocol, to netip.AddrPort, first, n int, settled func(sent int) error) {
	c.t.Helper()
	var fd int
	err := client.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	defer unix.Close(fd)
	packet := make([]byte, rawLength[over])
	destination := &unix.SockaddrInet4{Addr: to.Addr().As4()}
	send := func(from, end int) {
		for i := from; i < end; i++ {
			rawPacket(packet, over, netip.AddrPortFrom(client.IPv4, uint16(first+i)), to)
			if err := unix.Sendto(fd, packet, 0, destination); err != nil && !errors.Is(err, unix.EPERM) {
				c.t.Fatal(err)
			}
		}
	}
	const burst, looks = 1000, 100
	for begin := 0; begin < n; begin += burst {
		end, seen := min(begin+burst, n), 0
		send(begin, end)
		eventually(c.t, func() error {
			err := settled(end)
			if seen++; err != nil && seen%looks == 0 {
				send(begin, end)
			}
			return err
		})
	}
}

// TestManyFlowsFromTwoAddresses: 8.7. 100,000 flows of two clients to one server arrive, each with a source of its own.
func TestManyFlowsFromTwoAddresses(t *testing.T) {
	const flows = 50_000 // of each client
	c := newCluster(t, 2)
	c.addSources()
	const port = 9000
	from, to := sourceAddresses[model.IPv4], netip.MustParseAddrPort("203.0.113.1:80")
	c.applyText(fmt.Sprintf("kind: Balance\nname: web\nlisten: '%s/udp'\nbackends: '%s:%d'\nmasqueradeFrom: [%s, %s]\n", to, c.Pods[0].IPv4, port, from[0], from[1]))
	all := c.countSources(c.Pods[0], port)
	for i, client := range []*netlab.Host{c.Client, c.Pods[1]} {
		c.sendFlows(client, model.UDP, to, 1024, flows, func(sent int) error {
			if got := all.count(); got < i*flows+sent {
				return fmt.Errorf("%d of %d flows have arrived", got, i*flows+sent)
			}
			return nil
		})
	}
	for _, a := range from {
		if n := all.of(a); n != flows {
			t.Errorf("%d flows from %s, want %d", n, a, flows)
		}
	}
	if n := all.count(); n != 2*flows {
		t.Errorf("%d flows have arrived, want %d", n, 2*flows)
	}
}

// TestMasqueradePorts: 8.9. From one address, a server gets 64,512 connections of source ports from 1024 on. Then
// every new one fails, which a problem says, and the health check of the server goes on.
func TestMasqueradePorts(t *testing.T) {
	const port = 9000
	c := newCluster(t, 3)
	server, to := c.Pods[0], netip.MustParseAddrPort("203.0.113.1:80")
	block := func(command string) { server.NFT(t, strings.Fields(command)...) }
	block("add table ip block")
	block("add chain ip block in { type filter hook input priority 0 ; }")
	block(fmt.Sprintf("add rule ip block in tcp dport %d drop", port))
	c.applyText(fmt.Sprintf("kind: Balance\nname: web\nlisten: '%s'\nbackends: '%s:%d'\ncheck: {tcp, interval: 1s}\n", to, server.IPv4, port))
	c.set("net.netfilter.nf_conntrack_checksum", "0")
	c.set("net.netfilter.nf_conntrack_tcp_timeout_syn_sent", "3600")
	ports := c.fillPorts(to, c.Client, c.Pods[1])
	if first, last := slices.Min(ports), slices.Max(ports); len(ports) != conntrack.MasqueradePorts || first != 1024 || last != 65535 {
		t.Fatalf("%d connections with ports from %d to %d, want %d from 1024 to 65535", len(ports), first, last, conntrack.MasqueradePorts)
	}
	block("delete table ip block")
	echo, err := server.Listen("tcp", netip.AddrPortFrom(server.IPv4, port).String())
	if err != nil {
		t.Fatal(err)
	}
	checked := acceptFrom(t, echo)
	silent(t, c.Pods[2:], "tcp", to)
	c.start()
	for range 3 { // more than the one that decides at first
		if p := await.Receive(t, checked, "a connection of the health check"); p >= 1024 {
			t.Errorf("a connection from port %d", p)
		}
	}
	out := c.mustRun(0, exec.Command(binary, "status"))
	if want := fmt.Sprintf("tcp %s:%d has 64512 masqueraded connections from", server.IPv4, port); !strings.Contains(out, "MasqueradePortsUsed: ") || !strings.Contains(out, want) || strings.Contains(out, "CheckFailing") {
		t.Errorf("want %q, and no failing check:\n%s", want, out)
	}
}

// fillPorts opens connections until the server has all that it can have, and returns their source ports.
func (c *cluster) fillPorts(to netip.AddrPort, clients ...*netlab.Host) (ports []uint16) {
	c.t.Helper()
	const each = 4000
	for first := 1024; first+each < 1<<16; first += each {
		for _, client := range clients {
			c.sendFlows(client, model.TCP, to, first, each, func(int) error { return nil })
		}
		if first < 30_000 { // there cannot be enough
			continue
		}
		ports = nil
		err := c.Node.Do(func() error {
			return conntrack.Netlink{}.List(model.IPv4, model.TCP, func(f conntrack.Flow) {
				if f.Dialled == to {
					ports = append(ports, f.Returns.Port())
				}
			})
		})
		if err != nil {
			c.t.Fatal(err)
		}
		if len(ports) >= conntrack.MasqueradePorts {
			break
		}
	}
	return ports
}

// acceptFrom returns the source ports of connections, until the test ends.
func acceptFrom(t *testing.T, l net.Listener) <-chan uint16 {
	out := make(chan uint16, 100)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil { // closed
				return
			}
			select {
			case out <- uint16(conn.RemoteAddr().(*net.TCPAddr).Port):
			default:
			}
			conn.Close()
		}
	})
	t.Cleanup(func() {
		l.Close()
		accepting.Wait()
	})
	return out
}

// TestMasqueradeFromFollowsAddresses: 8.7, 8.8. An address that the machine loses is left out, which is a problem, and comes
// back with it; without any, connections come from an address of the outgoing interface.
func TestMasqueradeFromFollowsAddresses(t *testing.T) {
	from := sourceAddresses[model.IPv4]
	list := fmt.Sprintf("%s,%s", from[0], from[1])
	for name, run := range map[string]struct{ flag, field, problem string }{
		"node":    {"--masquerade-from=" + list, "", "no interface has %s, which --masquerade-from names: it is left out"},
		"Balance": {"", "masqueradeFrom: [" + list + "]\n", "%s: no interface of this machine has it"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			if run.flag != "" {
				c.flags = append(c.flags[:2:2], run.flag)
			}
			to := netip.MustParseAddrPort("203.0.113.1:80")
			text := fmt.Sprintf("kind: Balance\nname: web\nlisten: '%s'\nbackends: '%s'\n%s", to, endpointOf(c.Pods[0], model.IPv4), run.field)
			if err := os.WriteFile(c.file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			change := func(do func(netip.Addr) error, a netip.Addr) {
				t.Helper()
				if err := do(a); err != nil {
					t.Fatal(err)
				}
			}
			// sees waits until connections come from addresses in turn, and the others are problems.
			sees := func(want ...netip.Addr) {
				t.Helper()
				eventually(t, func() error {
					seen := make(map[netip.Addr]bool)
					for range 4 {
						got, err := c.Client.Ask("tcp", to, silence)
						if err != nil {
							return err
						}
						seen[got.Client] = true
					}
					for _, a := range want {
						if !seen[a] || len(seen) != len(want) {
							return fmt.Errorf("connections come from %v, want %v", seen, want)
						}
					}
					out := c.mustRun(0, exec.Command(binary, "status", "-o", "json"))
					for _, a := range from {
						if strings.Contains(out, fmt.Sprintf(run.problem, a)) == slices.Contains(want, a) {
							return fmt.Errorf("with connections from %v, the problem of %s:\n%s", want, a, out)
						}
					}
					return nil
				})
			}
			change(c.Node.AddAddress, from[0])
			c.start()
			sees(from[0])
			change(c.Node.AddAddress, from[1])
			sees(from...)
			change(c.Node.RemoveAddress, from[0])
			sees(from[1])
			change(c.Node.RemoveAddress, from[1])
			sees(c.Gateway(c.Pods[0], model.IPv4))
			change(c.Node.AddAddress, from[0])
			sees(from[0])
		})
	}
}
