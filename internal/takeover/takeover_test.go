package takeover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/vishvananda/netlink"
)

// node is a network namespace with what kube-proxy left in it.
type node struct {
	*netlab.Namespace
	t *testing.T
}

func newNode(t *testing.T) node {
	t.Helper()
	return node{netlab.TestNamespace(t), t}
}

// do runs f in the namespace.
func (n node) do(f func() error) {
	n.t.Helper()
	if err := n.Do(f); err != nil {
		n.t.Fatal(err)
	}
}

// run runs a command in the namespace and returns what it prints.
func (n node) run(stdin string, name string, args ...string) string {
	n.t.Helper()
	cmd := exec.Command(name, args...)
	var out, complaint strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
	if err := n.Run(cmd); err != nil {
		n.t.Fatalf("%s %s: %v\n%s", name, args, err, complaint.String())
	}
	return out.String()
}

// remove removes what is kube-proxy's.
func (n node) remove() (removed []string, err error) {
	n.t.Helper()
	n.do(func() error { removed, err = Remove(context.Background(), NoMarker); return nil })
	return removed, err
}

// nothing checks that there is nothing left to remove (12.59).
func (n node) nothing() {
	n.t.Helper()
	if removed, err := n.remove(); err != nil || len(removed) > 0 {
		n.t.Errorf("once more: %q, %v", removed, err)
	}
}

// variant is one of the places where iptables keeps its rules.
type variant struct {
	command string // iptables or ip6tables
	kind    string // nft or legacy
}

var variants = []variant{{"iptables", "nft"}, {"ip6tables", "nft"}, {"iptables", "legacy"}, {"ip6tables", "legacy"}}

func (v variant) String() string { return v.command + "-" + v.kind }

// Addresses of the rules, as words in testdata.
var addresses = map[string]*strings.Replacer{
	"iptables":  strings.NewReplacer("POD0", "10.128.0.2/32", "VIP", "10.96.0.10/32", "EMPTY", "10.96.0.11/32", "ENDPOINT", "10.128.0.2:8080"),
	"ip6tables": strings.NewReplacer("POD0", "fd00:10:128::2/128", "VIP", "fd00:10:96::10/128", "EMPTY", "fd00:10:96::11/128", "ENDPOINT", "[fd00:10:128::2]:8080"),
}

// load adds rules from a file of testdata.
func (n node) load(v variant, file string) {
	n.t.Helper()
	rules, err := os.ReadFile("testdata/" + file)
	if err != nil {
		n.t.Fatal(err)
	}
	text := addresses[v.command].Replace(string(rules))
	n.run(text, v.String()+"-restore", "--noflush", "--wait") // for the lock that all of the machine share
}

var noise = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]$`)

// save returns the rules without counters and times.
func (n node) save(v variant) string {
	n.t.Helper()
	return noise.ReplaceAllString(n.run("", v.String()+"-save"), "")
}

// 12.59: of iptables-nft, the chains of kube-proxy and the jumps go, and
// everything else stays as it was before they came.
func TestIptables(t *testing.T) {
	for _, v := range variants[:2] {
		t.Run(v.String(), func(t *testing.T) {
			n := newNode(t)
			n.load(v, "others.rules")
			before := n.save(v)
			n.load(v, "kube-proxy.rules")
			if !strings.Contains(n.save(v), "KUBE-SVC-WEB") {
				t.Fatal("no rules of kube-proxy are there")
			}
			removed, err := n.remove()
			if err != nil {
				t.Fatal(err)
			}
			if after := n.save(v); after != before {
				t.Errorf("left:\n%s\nwant:\n%s", after, before)
			}
			table := "table " + strings.TrimSuffix(v.command, "tables") + " "
			want := []string{
				"10 chains and 3 jumps in " + table + "nat",
				"6 chains and 6 jumps in " + table + "filter",
				"1 chain and 0 jumps in " + table + "mangle",
			}
			if !slices.Equal(removed, want) {
				t.Errorf("removed %q, want %q", removed, want)
			}
			n.nothing()
		})
	}
}

// 12.59: of nftables, the tables of kube-proxy go, and no other.
func TestTables(t *testing.T) {
	n := newNode(t)
	others := `
		add table inet kube-proxy
		add table ip kube-proxy-2
		add table ip nftproxy
		add chain ip nftproxy KUBE-SERVICES
		add chain ip nftproxy prerouting { type nat hook prerouting priority -100 ; }
		add rule ip nftproxy prerouting jump KUBE-SERVICES
	`
	n.run(others, "nft", "-f", "-")
	before := n.run("", "nft", "list", "ruleset")
	for _, family := range []string{"ip", "ip6"} {
		n.run(fmt.Sprintf(`
			add table %[1]s kube-proxy
			add chain %[1]s kube-proxy services
			add map %[1]s kube-proxy service-ips { type inet_service : verdict ; elements = { 80 : goto services } ; }
			add chain %[1]s kube-proxy nat-prerouting { type nat hook prerouting priority -100 ; }
			add rule %[1]s kube-proxy nat-prerouting jump services
			add rule %[1]s kube-proxy nat-prerouting th dport vmap @service-ips
		`, family), "nft", "-f", "-")
	}
	removed, err := n.remove()
	if want := []string{"table ip kube-proxy", "table ip6 kube-proxy"}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %q, %v, want %q", removed, err, want)
	}
	if after := n.run("", "nft", "list", "ruleset"); after != before {
		t.Errorf("left:\n%s\nwant:\n%s", after, before)
	}
	n.nothing()
}

// 12.59: of IPVS mode, the interface and the ipsets go with the chains that
// refer to them, and other ipsets stay.
func TestIPVS(t *testing.T) {
	for _, v := range variants[:2] {
		t.Run(v.String(), func(t *testing.T) {
			n := newNode(t)
			n.do(func() error {
				for _, name := range []string{"KUBE-CLUSTER-IP", "KUBE-6-LOOP-BACK", "KUBE-DST-ABC", "other"} {
					family := uint8(netlink.FAMILY_V4)
					if v.command == "ip6tables" {
						family = netlink.FAMILY_V6
					}
					if err := netlink.IpsetCreate(name, "hash:ip", netlink.IpsetCreateOptions{Family: family}); err != nil {
						return err
					}
				}
				return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: IPVSInterface}})
			})
			n.run(`*nat
:KUBE-SERVICES - [0:0]
:KUBE-LOAD-BALANCER - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A PREROUTING -m set --match-set KUBE-DST-ABC dst -j ACCEPT
-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst -j ACCEPT
-A KUBE-SERVICES -j KUBE-LOAD-BALANCER
COMMIT
*filter
:KUBE-NODE-PORT - [0:0]
:KUBE-SOURCE-RANGES-FIREWALL - [0:0]
:KUBE-IPVS-FILTER - [0:0]
:KUBE-IPVS-OUT-FILTER - [0:0]
-A INPUT -j KUBE-IPVS-FILTER
-A INPUT -j KUBE-NODE-PORT
-A OUTPUT -j KUBE-IPVS-OUT-FILTER
-A KUBE-NODE-PORT -m set --match-set KUBE-6-LOOP-BACK dst -j ACCEPT
COMMIT
`, v.String()+"-restore", "--noflush")

			removed, err := n.remove()
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"interface kube-ipvs0", "ipset KUBE-CLUSTER-IP", "ipset KUBE-6-LOOP-BACK"}; !slices.Equal(removed[2:], want) {
				t.Errorf("removed %q, want %q", removed[2:], want)
			}
			if left := n.save(v); strings.Contains(left, "-j KUBE") || strings.Contains(left, ":KUBE") || !strings.Contains(left, "KUBE-DST-ABC") {
				t.Errorf("left:\n%s", left)
			}
			n.do(func() error {
				sets, err := netlink.IpsetListAll()
				if len(sets) != 2 {
					t.Errorf("%d ipsets are left, want 2", len(sets))
				}
				if _, gone := netlink.LinkByName(IPVSInterface); gone == nil {
					t.Error("the interface is left")
				}
				return err
			})
			n.nothing()
		})
	}
}

// What belongs to others may need chains of kube-proxy: these stay, with those
// that they need in turn, and everything else goes (12.59).
func TestKeepsWhatOthersNeed(t *testing.T) {
	for _, v := range variants[:2] {
		t.Run(v.String(), func(t *testing.T) {
			n := newNode(t)
			n.load(v, "others.rules")
			n.load(v, "kube-proxy.rules")
			n.run("*nat\n-A CNI-HOSTPORT-DNAT -j KUBE-SVC-WEB\nCOMMIT\n", v.String()+"-restore", "--noflush")
			before := n.save(v)
			_, err := n.remove()
			if err == nil || !strings.Contains(err.Error(), "KUBE-SVC-WEB from CNI-HOSTPORT-DNAT") {
				t.Errorf("error %v", err)
			}
			after := n.save(v)
			for line := range strings.Lines(before) {
				stays := !strings.Contains(line, "KUBE")
				for _, name := range []string{"KUBE-SVC-WEB", "KUBE-SEP-WEB", "KUBE-MARK-MASQ", "KUBE-POSTROUTING"} {
					stays = stays || strings.HasPrefix(line, ":"+name) || strings.HasPrefix(line, "-A "+name)
				}
				stays = stays || strings.HasSuffix(line, "-j KUBE-POSTROUTING\n")
				if stays && !strings.Contains(after, line) {
					t.Errorf("gone: %s", line)
				}
			}
			for _, name := range []string{"KUBE-SERVICES", "KUBE-EXT-WEB", "KUBE-NODEPORTS"} {
				if strings.Contains(after, "-A "+name) || strings.Contains(after, "-j "+name+"\n") {
					t.Errorf("%s is left:\n%s", name, after)
				}
			}
		})
	}
}

// Chains of kube-proxy in tables of iptables-legacy are reported, and nothing is
// changed there (12.59).
func TestLegacy(t *testing.T) {
	for _, v := range variants[2:] {
		t.Run(v.String(), func(t *testing.T) {
			n := newNode(t)
			n.load(v, "others.rules")
			n.nothing()
			n.load(v, "kube-proxy.rules")
			before := n.save(v)
			removed, err := n.remove()
			if len(removed) > 0 || err == nil {
				t.Fatalf("removed %q, %v", removed, err)
			}
			for _, want := range []string{"from nat, filter, mangle of " + v.command + "-legacy", "kube-proxy --cleanup"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if after := n.save(v); after != before {
				t.Errorf("left:\n%s\nwant:\n%s", after, before)
			}
		})
	}
}

// A set that others use stays, and that is said.
func TestIPSetInUse(t *testing.T) {
	n := newNode(t)
	n.do(func() error {
		return netlink.IpsetCreate("KUBE-CLUSTER-IP", "hash:ip", netlink.IpsetCreateOptions{})
	})
	n.run("", "iptables-nft", "-A", "INPUT", "-m", "set", "--match-set", "KUBE-CLUSTER-IP", "dst", "-j", "ACCEPT")
	removed, err := n.remove()
	if len(removed) > 0 || err == nil || !strings.Contains(err.Error(), "ipset KUBE-CLUSTER-IP: rules refer to it") {
		t.Errorf("removed %q, %v", removed, err)
	}
	n.run("", "iptables-nft", "-F", "INPUT")
	if removed, err := n.remove(); err != nil || len(removed) != 1 {
		t.Errorf("removed %q, %v", removed, err)
	}
}

// 12.59: a virtual server is kube-proxy's if its address is one of a Service, or its port
// is a NodePort of the protocol. Those of other programs, and those of packet marks, stay.
func TestVirtualServersOfKubeProxy(t *testing.T) {
	const list = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A60000A:0050 rr
  -> 0A800002:1F90      Masq    1      0          0
UDP  [fd00:0010:0096:0000:0000:0000:0000:000a]:0035 rr persistent 10800
SCTP 0A60000A:0050 wrr
SCTP C0000201:7918 mh  (mh-port)
TCP  C0000201:7918 rr
TCP  C0000201:01BB rr
TCP  C6336407:0050 rr
FWM  0000000A rr
`
	n := newNode(t)
	n.do(func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: IPVSInterface}}); err != nil {
			return err
		}
		link, err := netlink.LinkByName(IPVSInterface)
		if err != nil {
			return err
		}
		for _, a := range []string{"10.96.0.10/32", "fd00:10:96::a/128"} {
			address, err := netlink.ParseAddr(a)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(link, address); err != nil {
				return err
			}
		}
		if err := netlink.IpsetCreate("KUBE-NODE-PORT-SCTP-HASH", "hash:ip,port", netlink.IpsetCreateOptions{}); err != nil {
			return err
		}
		port, protocol := uint16(31000), uint8(model.SCTP)
		if err := netlink.IpsetAdd("KUBE-NODE-PORT-SCTP-HASH", &netlink.IPSetEntry{IP: net.IPv4(192, 0, 2, 1), Port: &port, Protocol: &protocol}); err != nil {
			return err
		}
		services, err := addressesOf(link)
		if err != nil {
			return err
		}
		known, err := kubeProxyServers(services)
		if err != nil {
			return err
		}
		own := []string{}
		for _, v := range parseServers(list) {
			if known.isKubeProxys(v) {
				own = append(own, fmt.Sprint(v.protocol, " ", v.to))
			}
		}
		if want := []string{"tcp 10.96.0.10:80", "udp [fd00:10:96::a]:53", "sctp 10.96.0.10:80", "sctp 192.0.2.1:31000"}; !slices.Equal(own, want) {
			t.Errorf("recognised %q, want %q", own, want)
		}
		return nil
	})
}

// 12.89: connections are recognised by the virtual server that was dialled.
func TestConnectionsOfIPVS(t *testing.T) {
	const list = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP C0000202 4E21 0A60000A 0050 0A800002 1F90 ESTABLISHED     899
UDP 2001:0db8:0000:0000:0000:0000:0000:0002 4E22 fd00:0010:0096:0000:0000:0000:0000:000a 0035 fd00:0010:0128:0000:0000:0000:0000:0002 0035 UDP             299
TCP C0000202 0000 0A60000B 0050 0A800002 1F90 NONE            10799
`
	got := parseConnections(list)
	if want := []virtualServer{{model.TCP, netip.MustParseAddrPort("10.96.0.10:80")}, {model.UDP, netip.MustParseAddrPort("[fd00:10:96::a]:53")}}; !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// 12.59: a kernel without IPVS has no virtual servers, and a list that cannot be read keeps
// the interface and the ipsets, by which they are recognised.
func TestVirtualServersUnreadable(t *testing.T) {
	s := system{root: t.TempDir()}
	file := filepath.Join(s.root, "proc/thread-self/net/ip_vs")
	// A directory instead of the file.
	if err := errors.Join(os.MkdirAll(file, 0o755), os.MkdirAll(filepath.Join(s.root, "sys/module/ip_set"), 0o755)); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.do(func() error {
		return errors.Join(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: IPVSInterface}}),
			netlink.IpsetCreate("KUBE-NODE-PORT-SCTP-HASH", "hash:ip,port", netlink.IpsetCreateOptions{}))
	})
	remove := func() (removed []string, err error) {
		n.do(func() error { removed, err = s.remove(context.Background(), NoMarker); return nil })
		return removed, err
	}
	if removed, err := remove(); len(removed) > 0 || err == nil || !strings.Contains(err.Error(), "list virtual servers") {
		t.Errorf("removed %q, %v", removed, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if removed, err := remove(); len(removed) != 2 || err != nil {
		t.Errorf("once it can be read: %q, %v", removed, err)
	}
}

// 12.89: a connection of the machine from an address of the interface ends, and its program
// learns that. Others stay.
func TestOwnConnections(t *testing.T) {
	n := newNode(t)
	n.run("", "ip", "link", "set", "lo", "up")
	n.run("", "ip", "link", "add", IPVSInterface, "up", "type", "bridge")
	for i, addresses := range [][2]string{{"10.96.0.10", "127.0.0.1"}, {"fd00:10:96::a", "::1"}} {
		lost, kept := net.ParseIP(addresses[0]), net.ParseIP(addresses[1])
		n.run("", "ip", "address", "add", addresses[0], "dev", IPVSInterface, "nodad")
		l, err := n.Listen("tcp", net.JoinHostPort(addresses[1], "8080"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var connections []net.Conn
		for _, from := range []net.IP{lost, kept} {
			n.do(func() error {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
				c, err := d.Dial("tcp", l.Addr().String())
				connections = append(connections, c)
				return err
			})
		}
		removed, err := n.remove()
		if want := []string{"interface " + IPVSInterface, "1 connection of this machine from addresses of " + IPVSInterface}; err != nil || !slices.Equal(removed, want) {
			t.Errorf("removed %q, %v, want %q", removed, err, want)
		}
		if _, err := connections[0].Write([]byte("?")); err == nil {
			if _, err = connections[0].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNABORTED) {
				t.Errorf("%s: %v, want ECONNABORTED", lost, err)
			}
		}
		if _, err := connections[1].Write([]byte("?")); err != nil {
			t.Errorf("%s: %v", kept, err)
		}
		if i == 0 {
			n.run("", "ip", "link", "add", IPVSInterface, "up", "type", "bridge")
		}
	}
}

// 12.89: while connections have no entry, their packets are dropped, and new connections
// pass. The table ends with the guard.
func TestGuard(t *testing.T) {
	s := newSite(t)
	s.apply()
	flow := s.open(s.lab.Pods[1])[0] // from the client, over IPv4
	s.run("add table inet track; add chain inet track pre { type filter hook prerouting priority 0; }; add rule inet track pre ct state new counter", "nft", "-f", "-")
	var end func() error
	s.do(func() (err error) { end, err = guardConnections(); return err })
	s.do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	answered := make(chan error, 1)
	go func() {
		a, err := flow.Ask()
		if err == nil && a.Name != s.lab.Pods[1].Name {
			err = fmt.Errorf("answer of %s", a.Name)
		}
		answered <- err
	}()
	if a, err := s.lab.Client.Ask("tcp", vip[model.IPv4], 0); err != nil {
		t.Errorf("a new connection: %v, %v", a, err)
	}
	counted := func() bool { // the packet was dropped
		return !strings.Contains(s.run("", "nft", "list", "chain", "inet", guardTable, "prerouting"), "counter packets 0 ")
	}
	netlab.Eventually(t, 20*time.Second, func() error {
		if !counted() {
			return errors.New("no packet was dropped")
		}
		return nil
	})
	select {
	case err := <-answered:
		t.Errorf("answered behind the guard: %v", err)
	default:
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if tables := s.run("", "nft", "list", "tables"); strings.Contains(tables, guardTable) {
		t.Errorf("left:\n%s", tables)
	}
	if err := <-answered; err == nil {
		t.Error("a new entry translates a packet from the middle of a connection as before: the test shows nothing")
	}
}

// TestMarkersReturn: 12.62. A marker that another program removes is made again, but not where there is another
// table of that name.
func TestMarkersReturn(t *testing.T) {
	n := newNode(t)
	n.run("table ip kube-proxy { chain services { }\n}; table ip6 kube-proxy { chain services { }\n}", "nft", "-f", "-")
	var marks Marks
	n.do(func() (err error) {
		if _, err := Remove(context.Background(), MarkReplaced); err != nil {
			return err
		}
		marks, err = ReadMarks()
		return err
	})
	if len(marks) != 2 {
		t.Fatalf("markers: %v", marks)
	}
	n.run("delete table ip kube-proxy; delete table ip6 kube-proxy; table ip6 kube-proxy { chain other { }\n}", "nft", "-f", "-")
	for _, want := range []string{"table ip kube-proxy", ""} {
		var restored []string
		n.do(func() (err error) { restored, err = marks.Restore(); return err })
		if got := strings.Join(restored, ", "); got != want {
			t.Errorf("restored %q, want %q", got, want)
		}
	}
}
