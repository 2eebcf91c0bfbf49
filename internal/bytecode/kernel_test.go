package bytecode_test

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func TestMain(m *testing.M) { os.Exit(netlab.Run(m.Run)) }

// packet is from a client outside, unless a test changes it.
func packet(change func(*bytecode.Packet)) bytecode.Packet {
	p := bytecode.Packet{Protocol: 6, Source: netip.MustParseAddr("198.51.100.7"), Destination: netip.MustParseAddr("10.0.0.1"), SourcePort: 40000, Port: 80, In: "eth0"}
	if change != nil {
		change(&p)
	}
	return p
}

// TestRules: rules that nft loads, as the kernel lists them, do to packets what nft's manual says.
func TestRules(t *testing.T) {
	const pre = "chain pre { type filter hook prerouting priority 0; policy accept; "
	for _, c := range []struct {
		name, rules, want string
		change            func(*bytecode.Packet)
	}{
		{"no rule", "table ip a { }", "pass", nil},
		{"policy", "table ip a { chain pre { type filter hook prerouting priority 0; policy drop; } }", "drop", nil},
		{"policy behind a jump", "table ip a { chain b { return; } chain pre { type filter hook prerouting priority 0; policy drop; jump b; } }", "drop", nil},
		{"policy behind a goto", "table ip a { chain b { ip saddr 192.0.2.1 accept; } chain pre { type filter hook prerouting priority 0; policy drop; goto b; accept; } }", "drop", nil},
		{"return", "table ip a { chain b { return; drop; } " + pre + "jump b; reject; } }", "reject", nil},
		{"accept ends one chain", "table ip a { " + pre + "accept; } chain later { type filter hook prerouting priority 1; tcp dport 80 reject with tcp reset; } }", "reset", nil},
		{"another protocol", "table ip a { " + pre + "udp dport 80 drop; } }", "pass", nil},
		{"a set of addresses", "table ip a { " + pre + "ip saddr { 192.0.2.1, 198.51.100.7 } drop; } }", "drop", nil},
		{"a prefix", "table ip a { " + pre + "ip saddr 198.51.100.0/25 drop; } }", "drop", nil},
		{"not a prefix", "table ip a { " + pre + "ip saddr != 198.51.100.0/25 drop; } }", "pass", nil},
		{"intervals", "table ip a { set s { type ipv4_addr; flags interval; elements = { 192.0.2.0/24, 198.51.100.0/28 }; } " + pre + "ip saddr @s drop; } }", "drop", nil},
		{"behind an interval", "table ip a { set s { type ipv4_addr; flags interval; elements = { 192.0.2.0/24, 198.51.100.0/30 }; } " + pre + "ip saddr @s drop; } }", "pass", nil},
		{"intervals of several fields", "table ip a { set s { type ipv4_addr . inet_service; flags interval; elements = { 10.0.0.0/8 . 70-90 }; } " + pre + "ip daddr . tcp dport @s drop; } }", "drop", nil},
		{"a map of verdicts", "table ip a { " + pre + "ip daddr . tcp dport vmap { 10.0.0.1 . 80 : drop }; } }", "drop", nil},
		{"an element for all others", "table ip a { " + pre + "ip daddr vmap { 10.0.0.2 : accept, * : drop }; } }", "drop", nil},
		{"a range of ports", "table ip a { " + pre + "tcp dport 70-90 drop; } }", "drop", nil},
		{"a new connection", "table ip a { " + pre + "ct state new drop; } }", "drop", nil},
		{"states by map", "table ip a { " + pre + "ct state vmap { established : accept, related : accept, new : drop }; } }", "drop", nil},
		{"an interface", "table ip a { " + pre + "iifname \"eth*\" drop; } }", "drop", nil},
		{"both families", "table inet a { " + pre + "meta nfproto ipv4 tcp dport 80 drop; } }", "drop", nil},
		{"a limit that is not exceeded", "table ip a { " + pre + "limit rate over 1/second drop; } }", "pass", nil},
		{"a limit that is exceeded", "table ip a { " + pre + "limit rate over 1/second drop; } }", "drop", func(p *bytecode.Packet) { p.Exceeds = true }},
		{"a priority", "table ip a { " + pre + "meta priority 7265:6c61 drop; } }", "drop", func(p *bytecode.Packet) { p.Priority = 0x72656c61 }},
		{"a packet in a VRF", "table ip a { chain pre { type nat hook prerouting priority -100; tcp dport 80 redirect to :81; } chain in { type filter hook input priority 0; meta iifkind \"vrf\" drop; } }", "drop", func(p *bytecode.Packet) { p.InVRF = true }},
		{"an interface of no kind", "table ip a { chain pre { type nat hook prerouting priority -100; tcp dport 80 redirect to :81; } chain in { type filter hook input priority 0; meta iifkind != \"vrf\" drop; } }", "redirect to port 81", nil},
		{"a mark", "table ip a { " + pre + "meta mark set meta mark | 0x4000; meta mark & 0x4000 == 0x4000 drop; } }", "drop", nil},
		{"translation", "table ip a { chain pre { type nat hook prerouting priority -100; tcp dport 80 dnat to 192.0.2.2:8080; } }", "to 192.0.2.2:8080", nil},
		{"the first translation counts", "table ip a { chain b { type nat hook prerouting priority -90; dnat to 192.0.2.3; } chain pre { type nat hook prerouting priority -100; dnat to 192.0.2.2; } }", "to 192.0.2.2:80", nil},
		{"filters see both addresses", "table ip a { chain b { type filter hook prerouting priority -99; ip daddr 10.0.0.1 drop; } chain pre { type nat hook prerouting priority 50; dnat to 192.0.2.2; } }", "to 192.0.2.2:80", nil},
		{"forwarded after a translation", "table ip a { chain pre { type nat hook prerouting priority -100; dnat to 192.0.2.2; } chain f { type filter hook forward priority 0; ip daddr 192.0.2.2 ct original ip daddr 10.0.0.1 drop; } }", "drop", nil},
		{"translated to this machine", "table ip a { chain pre { type nat hook prerouting priority -100; tcp dport 80 redirect to :8080; } chain f { type filter hook input priority 0; tcp dport 8080 reject; } }", "reject", nil},
		{"source", "table ip a { chain post { type nat hook postrouting priority 100; snat to 192.0.2.9; } }", "pass from 192.0.2.9:0", nil},
		{"masquerade", "table ip a { chain post { type nat hook postrouting priority 100; oifname \"eth0\" masquerade; } }", "pass masquerade", nil},
		{"sent by this machine", "table ip a { chain o { type filter hook output priority 0; fib daddr type local drop; fib saddr type local reject; } }", "reject", func(p *bytecode.Packet) { p.Source, p.In = netip.MustParseAddr("192.168.7.1"), "" }},
		{"older connections are not translated", "table ip a { chain pre { type nat hook prerouting priority -100; dnat to 192.0.2.2; } }", "pass", func(p *bytecode.Packet) { p.Known = bytecode.Older }},
		{"a dynamic set", "table ip a { set s { type ipv4_addr; flags dynamic; timeout 1m; } " + pre + "add @s { ip saddr }; ip saddr @s drop; } }", "drop", nil},
		{"a table that sleeps", "table ip a { flags dormant; " + pre + "drop; } }", "pass", nil},
		{"the hop limit", "table ip a { " + pre + "ip ttl 1 drop; } }", "not understood: a load of bytes 8 of a header in chain pre of table a", nil},
		{"another user", "table ip a { " + pre + "meta skuid 0 drop; } }", "not understood: meta key 10 in chain pre of table a", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			results := follow(t, c.rules, packet(c.change))
			if len(results) != 1 || results[0].String() != c.want {
				t.Errorf("got %v, want %s", results, c.want)
			}
		})
	}
}

// follow loads rules in a namespace, and follows a packet by what the kernel lists.
func follow(t *testing.T, rules string, p bytecode.Packet) []bytecode.Result {
	t.Helper()
	ns := netlab.TestNamespace(t)
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(strings.NewReplacer("} chain", "}\nchain", " } }", "\n}\n}").Replace(rules))
	var problem strings.Builder
	cmd.Stderr = &problem
	if err := ns.Run(cmd); err != nil {
		t.Fatalf("%v: %s", err, problem.String())
	}
	var all *bytecode.Ruleset
	err := ns.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // nothing was written
		all, err = conn.ReadAll()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m := bytecode.Machine{Rules: all, Local: []netip.Addr{netip.MustParseAddr("192.168.7.1")}, Out: "eth0"}
	return m.Follow(p)
}

// TestChoices: all numbers that a rule can choose are ways of a packet.
func TestChoices(t *testing.T) {
	results := follow(t, "table ip a { chain one { dnat to 192.0.2.1; } chain pre { type nat hook prerouting priority -100; numgen random mod 4 0 goto one; dnat to numgen inc mod 3 map { 0 : 192.0.2.1, 1 : 192.0.2.2, 2 : 192.0.2.3 }; } }", packet(nil))
	bytecode.Sort(results)
	want := []float64{0.5, 0.25, 0.25}
	if len(results) != len(want) {
		t.Fatalf("got %v", results)
	}
	for i, r := range results {
		if r.Share < want[i]-1e-9 || r.Share > want[i]+1e-9 || r.To.Addr() != netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}) {
			t.Errorf("got %v with share %v, want %v", r, r.Share, want[i])
		}
	}
}
