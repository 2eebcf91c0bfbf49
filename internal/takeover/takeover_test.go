package takeover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	n.run(text, v.String()+"-restore", "--noflush")
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

// Virtual services of IPVS are not removed: the kernel does not know whose they
// are.
func TestVirtualServices(t *testing.T) {
	const head = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n"
	for _, c := range []struct{ name, list, want string }{
		{"no IPVS", "", ""},
		{"none", head, ""},
		{"some", head + "TCP  0A60000A:0050 rr \n  -> 0A800002:1F90      Masq    1      0          0\nUDP  [fd00:0010:0096:0000:0000:0000:0000:0010]:0035 rr \n", "2 are left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := system{root: t.TempDir()}
			if c.list != "" {
				dir := filepath.Join(s.root, "proc/thread-self/net")
				if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "ip_vs"), []byte(c.list), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			n := newNode(t)
			for _, was := range []bool{true, false} {
				var err error
				n.do(func() error {
					if was {
						if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: IPVSInterface}}); err != nil {
							return err
						}
					}
					_, err = s.remove(context.Background(), NoMarker)
					return nil
				})
				// Without the interface they are not kube-proxy's.
				if got := fmt.Sprint(err); (err != nil) != (c.want != "" && was) || err != nil && !strings.Contains(got, c.want) {
					t.Errorf("interface %v: %v", was, err)
				}
			}
		})
	}
}
