package test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// togetherPorts are the ports of three Balances at which clients have to stay with one server.
var togetherPorts = []struct {
	name, listen string
	at           []string // network and port
}{
	{"radius", "1812-1813/udp", []string{"udp 1812", "udp 1813"}},
	{"sip", "5060/tcp 5060/udp 10000-10003/udp", []string{"udp 5060", "tcp 5060", "udp 10000", "udp 10003"}},
	{"ftp", "21/tcp 40000-40003/tcp", []string{"tcp 21", "tcp 40000", "tcp 40003"}},
}

// balanceText returns one of these Balances with some servers. The last one has one port for all.
func balanceText(name, listen string, servers []*netlab.Host) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\nkind: Balance\nname: %s\naffinity: 10m\nlisten:\n", name)
	for _, entry := range strings.Fields(listen) {
		for _, f := range model.Families {
			address := vip[f].String()
			if f == model.IPv6 {
				address = "[" + address + "]"
			}
			fmt.Fprintf(&b, "- %q\n", address+":"+entry)
		}
	}
	fmt.Fprintln(&b, "backends:")
	for i, server := range servers {
		for _, f := range model.Families {
			text := server.Address(f).String()
			if i == len(servers)-1 {
				text = endpointOf(server, f).String()
			}
			fmt.Fprintf(&b, "- %q\n", text)
		}
	}
	return b.String()
}

// applyTogether applies all of them.
func (c *cluster) applyTogether(servers []*netlab.Host) {
	c.t.Helper()
	var all strings.Builder
	for _, p := range togetherPorts {
		all.WriteString(balanceText(p.name, p.listen, servers))
	}
	c.applyText(all.String())
}

// parsePort returns a network and the address and port of a Balance.
func parsePort(t *testing.T, text string, f model.Family) (network string, to netip.AddrPort) {
	t.Helper()
	var port uint16
	if _, err := fmt.Sscan(text, &network, &port); err != nil {
		t.Fatal(err)
	}
	return network, netip.AddrPortFrom(vip[f], port)
}

// holdTogether checks that every client stays with its server at some ports.
func (b bindings) holdTogether(t *testing.T, when string, f model.Family, ports []string) {
	t.Helper()
	for _, p := range ports {
		network, to := parsePort(t, p, f)
		b.hold(t, when+", "+p, network, to)
	}
}

// 5.16: RADIUS, SIP and FTP clients reach one server at all ports of a Balance, also one that has
// another port there. They stay when a server comes, and those of a server that leaves move
// together.
func TestAffinityOfAllPorts(t *testing.T) {
	c := newCluster(t, 4)
	c.echoAt(21, 1812, 1813, 5060, 10000, 10003, 40000, 40003)
	clients := c.crowd(12)
	for _, p := range togetherPorts {
		for _, f := range model.Families {
			t.Run(fmt.Sprint(p.name, " ", f), func(t *testing.T) {
				few := append([]*netlab.Host{c.Pods[0], c.Pods[1]}, c.Pods[3])
				c.applyTogether(few)
				network, to := parsePort(t, p.at[0], f)
				b := bind(t, clients, network, to)
				b.spread(t, few...)
				b.holdTogether(t, "bound", f, p.at)
				c.applyTogether(c.Pods)
				b.holdTogether(t, "a server has come", f, p.at)
				c.applyTogether(c.Pods[1:])
				for _, moved := range b.of(c.Pods[0].Name) {
					// From the last port on, so that not the first one binds.
					network, to := parsePort(t, p.at[len(p.at)-1], f)
					b[moved] = ask(t, moved, network, to).Name
				}
				if left := b.of(c.Pods[0].Name); len(left) > 0 {
					t.Errorf("%d clients are at a server that has left", len(left))
				}
				b.holdTogether(t, "a server has left", f, p.at)
			})
		}
	}
	text := c.mustRun(0, exec.Command(binary, "explain", "--from", clients[0].IPv4.String(), "udp", netip.AddrPortFrom(vip[model.IPv4], 1813).String()))
	if !strings.Contains(text, "the client stays with its server for 10m after its last new connection, at all ports of the Balance") || !strings.Contains(text, "the client is bound to it") {
		t.Errorf("explain does not say that the client is bound for all ports:\n%s", text)
	}
}

// echoAt has all pods answer at some ports.
func (c *cluster) echoAt(ports ...uint16) {
	c.t.Helper()
	for _, pod := range c.Pods {
		for _, port := range ports {
			echo, err := pod.Echo(port)
			if err != nil {
				c.t.Fatal(err)
			}
			c.t.Cleanup(func() { echo.Close() })
		}
	}
}

// 5.8, 5.16, 14.25: clients stay with their server at all ports over a restart, with new tables, and while a
// file with a mistake keeps the rules of an earlier run, also those that are bound only then. Without our
// tables they are balanced again, and stay together.
func TestAffinityOfAllPortsStays(t *testing.T) {
	c := newCluster(t, 3)
	c.echoAt(5060, 10000, 10003)
	sip, clients := togetherPorts[1], c.crowd(12)
	text := []byte(balanceText(sip.name, sip.listen, c.Pods))
	bound := make(map[model.Family]bindings)
	bindAgain := func(clients []*netlab.Host) {
		for _, f := range model.Families {
			network, to := parsePort(t, sip.at[0], f)
			if bound[f] == nil {
				bound[f] = make(bindings)
			}
			maps.Copy(bound[f], bind(t, clients, network, to))
		}
	}
	hold := func(when string) {
		for _, f := range model.Families {
			bound[f].holdTogether(t, when, f, sip.at)
		}
	}
	start := func(text []byte, flags ...string) *daemon {
		if err := os.WriteFile(c.file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return c.start(func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, flags...) })
	}
	awaitStatus := func(says string) {
		eventually(t, func() error {
			// With the exit status 1 there is a problem, for example that of the file.
			if status, err := c.Node.Output(binary, "status"); !strings.Contains(status, says) {
				return fmt.Errorf("status does not say %q: %v\n%s", says, err, status)
			}
			return nil
		})
	}
	d := start(text)
	c.inSync()
	bindAgain(clients[:8])
	hold("bound")
	if n := c.boundTogether(clients); n != 2*8 {
		t.Errorf("%d addresses are bound, want 16", n)
	}
	if described := c.mustRun(0, exec.Command(binary, "describe", "sip")); !strings.Contains(described, "for 10m after its last new connection, at all ports; 16 clients are bound") {
		t.Errorf("describe does not say that clients are bound at all ports:\n%s", described)
	}
	d.stop(t)

	d = start(text)
	awaitStatus(" added, ") // by this process
	hold("a restart")
	d.stop(t)

	d = start(text, "--affinity-size", "500000")
	awaitStatus(" added, ") // by this process
	hold("new tables")
	d.stop(t)

	d = start([]byte("kind: Balance\nname: ["), "--isolate-files", "--service-metrics")
	awaitStatus("served since")
	hold("the file has a mistake")
	bindAgain(clients[8:])
	hold("bound while the file has a mistake")
	if err := os.WriteFile(c.file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	c.inSync()
	hold("the file has no mistake")
	d.stop(t)

	for _, f := range model.Families {
		c.nft("delete", "table", nft.FamilyKeyword(f), nft.TableName)
	}
	d = start(text)
	c.inSync()
	if n := c.boundTogether(clients); n > 0 {
		t.Errorf("%d clients are bound in tables that were deleted", n)
	}
	bindAgain(clients)
	hold("balanced again")
	d.stop(t)
}

// 1.58, 5.16: a client of a Balance with a range that is too large for bindings reaches one server at all
// ports of the range, and at the others.
func TestAffinityOfLargeRange(t *testing.T) {
	c := newCluster(t, 3)
	at := []string{"udp 5060", "udp 10000", "udp 11777", "udp 12000", "tcp 21"}
	c.echoAt(5060, 10000, 11777, 12000, 21)
	clients := c.crowd(12)
	text := balanceText("media", "5060/udp 10000-12000/udp 21/tcp", c.Pods)
	text = strings.ReplaceAll(text, fmt.Sprintf(":%d\"", echoPort), "\"")
	text = strings.NewReplacer("["+c.Pods[2].IPv6.String()+"]", c.Pods[2].IPv6.String()).Replace(text)
	c.applyText(text)
	for _, f := range model.Families {
		network, to := parsePort(t, at[0], f)
		b := bind(t, clients, network, to)
		b.spread(t, c.Pods...)
		b.holdTogether(t, "a large range", f, at)
	}
}

// 5.16: each address of a Balance has bindings of its own, which do not affect each other.
func TestAffinityOfAllPortsByAddress(t *testing.T) {
	c := newCluster(t, 2)
	c.echoAt(1812, 1813)
	clients, f := c.crowd(8), model.IPv4
	text := balanceText("radius", "1812-1813/udp", c.Pods)
	second := vip[f].Next()
	text = strings.Replace(text, "listen:\n", fmt.Sprintf("listen:\n- %q\n", second.String()+":1812-1813/udp"), 1)
	c.applyText(text)
	first := bind(t, clients, "udp", netip.AddrPortFrom(vip[f], 1812))
	slices.Reverse(clients) // by round robin the others get the servers of these
	other := bind(t, append(clients[1:], clients[0]), "udp", netip.AddrPortFrom(second, 1812))
	for range 2 {
		first.hold(t, "bound at another address", "udp", netip.AddrPortFrom(vip[f], 1813))
		other.hold(t, "bound at another address", "udp", netip.AddrPortFrom(second, 1813))
	}
}

// boundTogether returns how many addresses of clients are bound for all ports of a Balance.
func (c *cluster) boundTogether(clients []*netlab.Host) (n int) {
	c.t.Helper()
	for _, f := range model.Families {
		listing := c.nft("--stateless", "list", "map", nft.FamilyKeyword(f), nft.TableName, nft.SharedAffinityMap)
		for _, client := range clients {
			n += strings.Count(listing, " . "+client.Address(f).String()+" ")
		}
	}
	return n
}

// 5.12, 5.16: clients of one Balance fill the map of clients that are bound for all ports. Those of another one
// stay where they are, further ones are served at all ports, and no more are remembered than there is room for.
func TestAffinityOfAllPortsWithoutRoom(t *testing.T) {
	c := newCluster(t, 3)
	c.echoAt(1812, 1813, 5060, 10000, 10003)
	c.flags = append([]string{"--affinity-size", "8"}, clusterCIDR...)
	c.applyTogether(c.Pods)
	clients, radius, sip := c.crowd(24), togetherPorts[0], togetherPorts[1]
	for _, f := range model.Families {
		network, to := parsePort(t, radius.at[0], f)
		honest := bind(t, clients[:4], network, to)
		for _, at := range sip.at {
			network, to := parsePort(t, at, f)
			bind(t, clients[4:], network, to)
		}
		honest.holdTogether(t, "the map is full", f, radius.at)
	}
	if n := c.boundTogether(clients); n == 0 || n > 2*8 {
		t.Errorf("the kernel remembers %d addresses, want 16 at most", n)
	}
}

// 5.16: clients of a Balance that gets a second port are bound again, for both ports, and again when one is left.
func TestAffinityOfSecondPort(t *testing.T) {
	c := newCluster(t, 3)
	c.echoAt(1812, 1813)
	clients := c.crowd(8)
	for _, listen := range []string{"1812/udp", "1812-1813/udp", "1812/udp"} {
		c.applyText(balanceText("radius", listen, c.Pods))
		at := togetherPorts[0].at
		if listen == "1812/udp" {
			at = at[:1]
		}
		for _, f := range model.Families {
			network, to := parsePort(t, at[len(at)-1], f)
			bind(t, clients, network, to).holdTogether(t, "listens at "+listen, f, at)
		}
	}
}
