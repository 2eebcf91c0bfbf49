package test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/footprint"
)

// leftover is how a kind of footprint is tried.
type leftover struct {
	// state is a command of a shell that prints what there is of the kind.
	state string
	// damage changes or removes it, and the next comparison brings it back; empty: it is no state that nftproxy
	// keeps, or the process that has made it has ended.
	damage string
	// stays reports whether "cleanup" leaves it.
	stays bool
	// elsewhere is the test that proves what the kind says, where it needs an API server or systemd.
	elsewhere string
}

// leftovers has a row for each kind. $1, $2 and $3 are the directories for the run, for the state and for health.
var leftovers = map[string]leftover{
	"addresses":             {state: "ip -o address show dev vip0 | grep -oE '203.0.113.10/32|2001:db8:9::10/128' | sort", damage: "ip address del 203.0.113.10/32 dev vip0; ip address del 2001:db8:9::10/128 dev vip0"},
	"health files":          {state: "cat $3/default_web", damage: "echo 7 >$3/default_web"},
	"forwarding":            {state: "cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding", damage: "echo 0 >/proc/sys/net/ipv4/ip_forward"},
	"conntrack settings":    {state: "cat /proc/sys/net/netfilter/nf_conntrack_udp_timeout", damage: "echo 77 >/proc/sys/net/netfilter/nf_conntrack_udp_timeout"},
	"fast path test":        {state: "nft list table inet nftproxy-fast-path-tested"},
	"fast path":             {state: "nft list table inet nftproxy-fast-path"},
	"records":               {state: "ls $1/rules.json"},
	"sockets":               {state: "cd $1 && ls control.sock"},
	"runtime directory":     {state: "ls -d $1"},
	"state files":           {state: "ls $2/valid", stays: true},
	"connections":           {state: "grep -c 203.0.113.10 /proc/net/nf_conntrack", stays: true},
	"names":                 {elsewhere: "TestLeftNames"},
	"takeover marker":       {elsewhere: "TestMarkersReturn"},
	"relay port":            {elsewhere: "TestRelayRestart"},
	"node condition":        {elsewhere: "TestNodeCondition"},
	"events":                {elsewhere: "TestEvents"},
	"migration":             {elsewhere: "TestMigration"},
	"test namespaces":       {elsewhere: "TestConvergeLeftovers"},
	"files of the operator": {elsewhere: "TestWriteConfig"},
}

// TestFootprint: each kind of what nftproxy leaves outside of its tables is there while it runs, returns when
// another program damages it, stays when the process is killed, and is gone after "cleanup": the machine is as
// it was before the first start.
func TestFootprint(t *testing.T) {
	for _, k := range footprint.Kinds {
		if l, ok := leftovers[k.Name]; !ok {
			t.Errorf("%s: no row", k.Name)
		} else if l.stays == (k.Remove != nil) && l.elsewhere == "" {
			t.Errorf("%s: stays after cleanup: %v, and cleanup removes it: %v", k.Name, l.stays, k.Remove != nil)
		}
	}
	tests := testsOf(t)
	for name, l := range leftovers {
		if l.elsewhere != "" && !slices.Contains(tests, l.elsewhere) {
			t.Errorf("%s: there is no %s", name, l.elsewhere)
		}
	}
	m := newFootprintMachine(t)
	before := m.snapshot()
	m.start()
	m.dial()
	// What a sandbox has no devices for.
	m.Node.TestScript(t, fastPathTables)
	m.there("while nftproxy runs", "records")
	m.damage()
	m.kill()
	m.there("after kill -9", "records")
	m.cleanup(before)

	m.start()
	m.stop()
	m.Node.TestScript(t, fastPathTables)
	m.there("after SIGTERM", "sockets")
	m.cleanup(before)
}

// TestFootprintOfOthers: 12.59. "cleanup" leaves a setting that another program has changed, and forwarding where
// another program filters what is forwarded, with the command that turns it off.
func TestFootprintOfOthers(t *testing.T) {
	m := newFootprintMachine(t)
	m.start()
	m.stop()
	m.set("net.netfilter.nf_conntrack_udp_timeout", "77")
	m.nftLoad("table inet other {\n chain forward { type filter hook forward priority 0; counter\n }\n}")
	_, log := m.mustRunBoth(0, m.program("cleanup"))
	if is := m.is(leftovers["forwarding"]); is != expected["forwarding"] {
		t.Errorf("forwarding is %q", is)
	}
	if is := m.is(leftovers["conntrack settings"]); is != "77" {
		t.Errorf("the setting of another program is %q", is)
	}
	for _, want := range []string{"chain forward of table other", "echo 0 > /proc/sys/net/ipv4/ip_forward"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not have %q: %s", want, log)
		}
	}
}

// footprintMachine is a machine whose nftproxy leaves all that it can.
type footprintMachine struct {
	*cluster
	runtime, state, health string
	daemon                 *daemon
}

func newFootprintMachine(t *testing.T) *footprintMachine {
	t.Helper()
	c, dir := newCluster(t, 1), t.TempDir()
	m := &footprintMachine{cluster: c, runtime: filepath.Join(dir, "run"), state: filepath.Join(dir, "state"), health: filepath.Join(dir, "run", "health")}
	c.flags = nil
	text := fmt.Sprintf(`kind: Balance
name: web
listen: ["203.0.113.10:80", "[2001:db8:9::10]:80"]
backends: ["%s:%d", "[%s]:%d"]
announce: vip0
`, c.Pods[0].IPv4, echoPort, c.Pods[0].IPv6, echoPort)
	if err := errors.Join(os.WriteFile(c.file, []byte(text), 0o644), os.MkdirAll(m.state, 0o700)); err != nil {
		t.Fatal(err)
	}
	c.Node.TestScript(t, `ip link add vip0 type veth peer name vip1; ip link set vip0 addrgenmode none; ip link set vip1 addrgenmode none; ip link set vip0 up; ip link set vip1 up
cd /proc/sys/net; echo 0 >ipv4/ip_forward; echo 0 >ipv6/conf/all/forwarding; cat netfilter/nf_conntrack_udp_timeout`)
	return m
}

// program returns a command with the directories that systemd gives.
func (m *footprintMachine) program(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+m.runtime, "STATE_DIRECTORY="+m.state)
	return cmd
}

// start starts nftproxy, and waits until the addresses are there.
func (m *footprintMachine) start() {
	m.t.Helper()
	if err := os.MkdirAll(m.runtime, 0o700); err != nil { // as systemd does
		m.t.Fatal(err)
	}
	m.daemon = m.cluster.start(func(cmd *exec.Cmd) {
		own := m.program("run", "-f", m.file, "--isolate-files", "--manage-sysctl", "--no-table-owner",
			"--health-directory", m.health, "--conntrack-udp-timeout", "61s")
		cmd.Path, cmd.Args, cmd.Env = own.Path, own.Args, own.Env
	})
	for _, name := range []string{"addresses", "health files", "forwarding", "sockets"} {
		m.awaits(name, expected[name])
	}
}

// expected are the states that nftproxy keeps.
var expected = map[string]string{
	"addresses":          "2001:db8:9::10/128\n203.0.113.10/32",
	"health files":       "0",
	"forwarding":         "1\n1",
	"conntrack settings": "61",
	"sockets":            "control.sock",
}

// is returns the state of a kind.
func (m *footprintMachine) is(l leftover) string {
	out, _ := m.Node.Output("sh", "-c", "exec 2>/dev/null\n"+l.state, "sh", m.runtime, m.state, m.health) // there may be none
	return strings.TrimSpace(out)
}

// awaits waits for the state of a kind.
func (m *footprintMachine) awaits(name, want string) {
	m.t.Helper()
	eventually(m.t, func() error {
		if is := m.is(leftovers[name]); is != want {
			return fmt.Errorf("%s: %q, want %q", name, is, want)
		}
		return nil
	})
}

// there checks that there is something of each kind, except one.
func (m *footprintMachine) there(when, except string) {
	m.t.Helper()
	for name, l := range leftovers {
		if is := m.is(l); l.elsewhere == "" && (is != "") != (name != except) {
			m.t.Errorf("%s, %s: %q", name, when, is)
		}
	}
}

// dial makes a connection.
func (m *footprintMachine) dial() {
	m.t.Helper()
	m.Client.TestScript(m.t, "ip route replace 203.0.113.10/32 via "+m.Node.IPv4.String())
	eventually(m.t, func() error {
		_, err := m.Client.Ask("tcp", netip.MustParseAddrPort("203.0.113.10:80"), silence)
		return err
	})
}

// damage damages all kinds, and has the rules compared.
func (m *footprintMachine) damage() {
	m.t.Helper()
	for name, l := range leftovers {
		if l.damage == "" {
			continue
		}
		m.Node.TestScript(m.t, l.damage, m.runtime, m.state, m.health)
		m.nft("delete", "table", "ip", "nftproxy")
		m.awaits(name, expected[name])
	}
}

func (m *footprintMachine) kill() {
	_ = m.daemon.cmd.Process.Kill()
	_ = m.daemon.cmd.Wait() // the error is the signal
}

func (m *footprintMachine) stop() { m.daemon.stop(m.t) }

// cleanup removes all, and compares the machine with what it was.
func (m *footprintMachine) cleanup(before string) {
	m.t.Helper()
	fmt.Fprint(m.t.Output(), m.mustRun(0, m.program("cleanup")))
	for name, l := range leftovers {
		is := m.is(l)
		if set := l.damage != "" && is != expected[name]; l.elsewhere == "" && !set && (is != "") != l.stays { // it has the value from before
			m.t.Errorf("%s: after cleanup: %q", name, is)
		}
	}
	if after := m.snapshot(); after != before {
		m.t.Errorf("after cleanup, the machine is not as before:\n%s", difference(before, after))
	}
}

// snapshot returns all of the network namespace and of the runtime directory that nftproxy could change.
func (m *footprintMachine) snapshot() string {
	m.t.Helper()
	out, err := m.Node.Output("sh", "-c", `ip -o address; ip route show table all; ip -6 route show table all; ip rule; ip -6 rule
ip -o link | sed 's/ qlen .*//'; nft list ruleset; find "$1" 2>/dev/null
cd /proc/sys/net; grep -r . ipv4/conf ipv6/conf ipv4/ip_forward netfilter 2>/dev/null | grep -vE 'nf_conntrack_count|stable_secret'`, "sh", m.runtime)
	if err != nil {
		m.t.Fatal(err)
	}
	lines := strings.Split(out, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// testsOf returns the names of all tests.
func testsOf(t *testing.T) (names []string) {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// fastPathTables makes the tables of the fast path, with a chain of the right hook.
const fastPathTables = `nft add table inet nftproxy-fast-path-tested
nft "table inet nftproxy-fast-path { chain forward { type filter hook forward priority 0; counter; }; }"`

// difference returns the lines that one of two texts lacks.
func difference(before, after string) string {
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	var b strings.Builder
	for _, l := range was {
		if !slices.Contains(is, l) {
			fmt.Fprintln(&b, "-", l)
		}
	}
	for _, l := range is {
		if !slices.Contains(was, l) {
			fmt.Fprintln(&b, "+", l)
		}
	}
	return b.String()
}
