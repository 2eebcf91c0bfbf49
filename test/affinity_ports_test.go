package test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
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
	for _, pod := range c.Pods {
		for _, port := range []uint16{21, 1812, 1813, 5060, 10000, 10003, 40000, 40003} {
			echo, err := pod.Echo(port)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { echo.Close() })
		}
	}
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
