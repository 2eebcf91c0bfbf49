package test

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// queryPath is a way that DNS queries of a pod can take. Ways without a scheduler have no rules of nftproxy.
type queryPath struct {
	name      string
	scheduler string // of nftproxy
	rules     string // of the node
	translate string // what else happens to packets that these rules translate
	cached    bool   // a cache on the node answers
}

// translating are rules that write an endpoint into a packet before connection tracking sees it, by a hash of client and
// port, and the address of the Service into the answer behind it. They are those of a trial. The first verb says what else
// happens to packets; the others are the addresses of the Service and of two endpoints, of IPv4 and of IPv6.
const translating = `
table inet direct {
	chain tracked { type filter hook prerouting priority mangle; ct state invalid; }
	set answers4 { type ipv4_addr . inet_service; size 65535; flags dynamic, timeout; timeout 30s; }
	set answers6 { type ipv6_addr . inet_service; size 65535; flags dynamic, timeout; timeout 30s; }
	chain queries {
		type filter hook prerouting priority -310;
		ip daddr %[2]s udp dport 80 ip daddr set jhash ip saddr . udp sport mod 2 map { 0 : %[3]s, 1 : %[4]s } update @answers4 { ip saddr . udp sport } udp dport set 8080 %[1]s
		ip6 daddr %[5]s udp dport 80 ip6 daddr set jhash ip6 saddr . udp sport mod 2 map { 0 : %[6]s, 1 : %[7]s } update @answers6 { ip6 saddr . udp sport } udp dport set 8080 %[1]s
		udp sport 8080 %[1]s
	}
	chain answers {
		type filter hook postrouting priority 300;
		udp sport 8080 ip daddr . udp dport @answers4 ip saddr set %[2]s udp sport set 80
		udp sport 8080 ip6 daddr . udp dport @answers6 ip6 saddr set %[5]s udp sport set 80
	}
}`

// tracking has the kernel track connections, and nothing else.
const tracking = `
table inet tracking {
	chain prerouting { type filter hook prerouting priority mangle; ct state invalid; }
}`

// caching are the rules of NodeLocal DNSCache: its packets are not tracked, and filters let them pass.
const caching = `
table inet cache {
	chain prerouting {
		type filter hook prerouting priority raw;
		ip daddr 169.254.20.10 udp dport 80 notrack
		ip6 daddr fd00:169:254::10 udp dport 80 notrack
	}
	chain input {
		type filter hook input priority filter;
		ip daddr 169.254.20.10 udp dport 80 accept
		ip6 daddr fd00:169:254::10 udp dport 80 accept
	}
	chain raw-output {
		type filter hook output priority raw;
		ip saddr 169.254.20.10 udp sport 80 notrack
		ip6 saddr fd00:169:254::10 udp sport 80 notrack
	}
	chain output {
		type filter hook output priority filter;
		ip saddr 169.254.20.10 udp sport 80 accept
		ip6 saddr fd00:169:254::10 udp sport 80 accept
	}
}`

var cacheAddress = map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("169.254.20.10"), model.IPv6: netip.MustParseAddr("fd00:169:254::10")}

var queryPaths = []queryPath{
	{name: "no rules"},
	{name: "connection tracking", rules: tracking},
	{name: "round-robin", scheduler: "round-robin"},
	{name: "maglev-port", scheduler: "maglev-port"},
	{name: "translated, then tracked", rules: translating, translate: "accept"},
	{name: "translated, not tracked", rules: translating, translate: "notrack"},
	{name: "cache on the node", scheduler: "round-robin", rules: caching, cached: true},
}

// queries is a node with a pod that asks, and two that answer.
type queries struct {
	*netlab.Lab
	queryPath
	tb      testing.TB
	web     service
	client  *netlab.Host
	servers []*netlab.Host // the pods, or the node
}

func newQueries(tb testing.TB, p queryPath) *queries {
	tb.Helper()
	lab := netlab.TestLab(tb, 3)
	q := &queries{lab, p, tb, scheduled(p.scheduler, lab.Pods[:2]...), lab.Pods[2], lab.Pods[:2]}
	if p.scheduler != "" {
		file := filepath.Join(tb.TempDir(), "services.yaml")
		q.must(os.WriteFile(file, []byte(renderInput(tb, lab.Node, []service{q.web})), 0o644))
		q.run(exec.Command(binary, slices.Concat([]string{"apply", "-f", file, "--hostname-override", nodeName}, clusterCIDR)...))
	}
	rules := p.rules
	if p.translate != "" {
		a, b := lab.Pods[0], lab.Pods[1]
		rules = fmt.Sprintf(rules, p.translate, q.web.clusterIP(model.IPv4).Addr(), a.IPv4, b.IPv4, q.web.clusterIP(model.IPv6).Addr(), a.IPv6, b.IPv6)
	}
	if p.cached {
		cache, err := lab.Node.Alias(cacheAddress[model.IPv4], cacheAddress[model.IPv6])
		q.must(err)
		q.servers = []*netlab.Host{cache}
	}
	if rules != "" {
		load := exec.Command("nft", "-f", "-")
		load.Stdin = strings.NewReader(rules)
		q.run(load)
	}
	return q
}

func (q *queries) must(err error) {
	q.tb.Helper()
	if err != nil {
		q.tb.Fatal(err)
	}
}

// run runs a command on the node.
func (q *queries) run(cmd *exec.Cmd) {
	q.tb.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := q.Node.Run(cmd); err != nil {
		q.tb.Fatalf("%s: %v\n%s", cmd, err, &out)
	}
}

// to returns where the pod asks.
func (q *queries) to(f model.Family) netip.AddrPort {
	switch {
	case q.cached:
		return netip.AddrPortFrom(cacheAddress[f], servicePort)
	case q.scheduler == "" && q.translate == "":
		return endpointOf(q.servers[0], f)
	}
	return q.web.clusterIP(f)
}

// at returns where a server answers.
func (q *queries) at(h *netlab.Host, f model.Family) netip.AddrPort {
	if q.cached {
		return q.to(f)
	}
	return endpointOf(h, f)
}

// entries returns how many connections the node tracks.
func (q *queries) entries() (n int) {
	q.tb.Helper()
	q.must(q.Node.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	}))
	return n
}

// untracked reports whether the node does not track queries.
func (q *queries) untracked() bool {
	return q.cached || q.translate == "notrack" || q.rules == "" && q.scheduler == ""
}

// forget removes all entries.
func (q *queries) forget() {
	q.tb.Helper()
	q.must(q.Node.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }))
	if q.translate != "" {
		q.run(exec.Command("nft", "flush set inet direct answers4; flush set inet direct answers6"))
	}
}

// serve starts the servers of the pods, and a cache on the node, which asks them over TCP for names that it does not have.
func (q *queries) serve() {
	q.tb.Helper()
	q.must(q.EchoOnPods(echoPort))
	if !q.cached {
		return
	}
	for _, f := range model.Families {
		listener, err := q.Node.ListenPacket("udp", q.to(f).String())
		q.must(err)
		upstream, err := q.Node.DialContext(q.tb.Context(), "tcp", q.web.clusterIP(f).String())
		q.must(err)
		q.tb.Cleanup(func() { listener.Close(); upstream.Close() })
		go cache(listener, upstream)
	}
}

// cache answers lines until its socket is closed.
func cache(listener net.PacketConn, upstream net.Conn) {
	known, lines, buffer := make(map[string][]byte), bufio.NewReader(upstream), make([]byte, 1500)
	for {
		n, client, err := listener.ReadFrom(buffer)
		if err != nil {
			return
		}
		answer, found := known[string(buffer[:n])]
		if !found {
			if _, err := upstream.Write(buffer[:n]); err != nil {
				return
			}
			if answer, err = lines.ReadBytes('\n'); err != nil {
				return
			}
			known[string(buffer[:n])] = answer
		}
		// The error of one client must not affect the next one.
		_, _ = listener.WriteTo(answer, client)
	}
}

// datagrams returns a socket of a host, bound to an address.
func (q *queries) datagrams(h *netlab.Host, at netip.AddrPort) (fd int) {
	q.tb.Helper()
	q.must(h.Do(func() (err error) {
		fd, err = unix.Socket(domainOf(at.Addr()), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	}))
	q.tb.Cleanup(func() { unix.Close(fd) })
	q.must(unix.Bind(fd, socketAddress(at)))
	return fd
}

func domainOf(a netip.Addr) int {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
