package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// restart is a start of nftproxy with other flags, and with a file that has a mistake.
type restart struct {
	before, after []string // flags
	bad           string   // what bad.yaml was at the first start; empty: it is new
	fine          bool     // and it has no mistake
}

var restarts = map[string]restart{
	"other counters":            {after: []string{"--service-metrics"}},
	"the same flags":            {},
	"other flags, no mistake":   {after: []string{"--observe=connections"}, fine: true},
	"the file was valid":        {after: []string{"--service-metrics"}, bad: balanceText("bad", "203.0.113.9", "10.1.0.1")},
	"connections no more":       {before: []string{"--observe=connections"}, after: []string{"--observe=off"}},
	"counters of endpoints":     {after: []string{"--endpoint-metrics"}},
	"answered pings":            {after: []string{"--answer-ping"}},
	"other node addresses":      {after: []string{"--nodeport-addresses=127.0.0.0/8"}},
	"fewer node addresses":      {before: []string{"--nodeport-addresses=127.0.0.0/8", "--service-metrics"}},
	"another size of a set":     {after: []string{"--affinity-size=1000"}},
	"all of it":                 {after: []string{"--endpoint-metrics", "--answer-ping", "--affinity-size=1000", "--observe=failures", "--nodeport-addresses=127.0.0.0/8"}},
	"all of it, and no more":    {before: []string{"--endpoint-metrics", "--answer-ping", "--affinity-size=1000", "--observe=failures", "--nodeport-addresses=127.0.0.0/8"}},
	"addresses of balancers":    {after: []string{"--load-balancer-cidrs=203.0.113.0/24"}},
	"no addresses of balancers": {before: []string{"--load-balancer-cidrs=203.0.113.0/24"}},
}

func balanceText(name, listen string, servers ...string) string {
	return fmt.Sprintf("kind: Balance\nname: %s\nlisten: %s:80\nbackends: [%s]\naffinity: 10m\nlimits: {connectionsPerClient: 100}\n", name, listen, strings.Join(servers, ", "))
}

// TestMistakeAtRestart: 12.82, 12.86. A file with a mistake at a start that also changes the structure of
// the rules: the other files are followed, Balances of the earlier run that no file has answer as
// before, status names these, the process is healthy, and diff of the same files is empty.
func TestMistakeAtRestart(t *testing.T) {
	for name, c := range restarts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newRestartLab(t).check(t, &c)
		})
	}
}

type restartLab struct {
	ns         *netlab.Namespace
	dir, state string
}

func newRestartLab(t *testing.T) *restartLab {
	l := &restartLab{netlab.TestNamespace(t), t.TempDir(), t.TempDir()}
	l.ns.TestScript(t, "ip link set lo up && ip address add 10.1.0.1/24 dev lo && ip address add 10.1.0.2/24 dev lo && ip route add local 203.0.113.0/24 dev lo")
	for _, server := range []string{"10.1.0.1", "10.1.0.2"} {
		listener, err := l.ns.Listen("tcp", server+":80")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, server)
				_ = c.Close()
			}
		}()
	}
	l.write(t, "good.yaml", balanceText("good", "203.0.113.1", "10.1.0.1"))
	l.write(t, "gone.yaml", balanceText("gone", "203.0.113.3", "10.1.0.2"))
	return l
}

func (l *restartLab) write(t *testing.T, name, text string) {
	t.Helper()
	aside := filepath.Join(l.state, name)
	if err := os.WriteFile(aside, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, filepath.Join(l.dir, name)); err != nil {
		t.Fatal(err)
	}
}

func (l *restartLab) run(t *testing.T, flags []string) *process {
	t.Helper()
	args := append([]string{"run", "-f", l.dir, "--isolate-files", "--drain-file", "", "--changes-file", "", "--healthz-bind-address", "127.0.0.1:10256"}, flags...)
	return startWith(t, l.ns, asNftproxy(t, args...), "STATE_DIRECTORY="+l.state)
}

// answers waits until a server answers at an address.
func (l *restartLab) answers(t *testing.T, address, server string) {
	t.Helper()
	eventually(t, server+" answers at "+address, func() bool { return l.answer(t, address) == server })
}

func (l *restartLab) answer(t *testing.T, address string) string {
	c, err := l.ns.DialContext(t.Context(), "tcp", net.JoinHostPort(address, "80"))
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(c)
	_ = c.Close()
	return string(text)
}

func (l *restartLab) check(t *testing.T, c *restart) {
	if c.bad != "" {
		l.write(t, "bad.yaml", c.bad)
	}
	first := l.run(t, c.before)
	l.answers(t, "203.0.113.1", "10.1.0.1")
	l.answers(t, "203.0.113.3", "10.1.0.2")
	first.kill()
	if err := os.Remove(filepath.Join(l.dir, "gone.yaml")); err != nil {
		t.Fatal(err)
	}
	if !c.fine {
		l.write(t, "bad.yaml", "kind: Balance\nname: bad\nlisten: nonsense\n")
	}
	l.run(t, c.after)
	l.write(t, "new.yaml", balanceText("new", "203.0.113.2", "10.1.0.1"))
	l.answers(t, "203.0.113.2", "10.1.0.1")
	l.write(t, "good.yaml", balanceText("good", "203.0.113.1", "10.1.0.2"))
	l.answers(t, "203.0.113.1", "10.1.0.2")
	for _, page := range []string{"healthz", "livez"} {
		if code, body := get(t, l.ns, "http://127.0.0.1:10256/"+page); code != 200 {
			t.Errorf("%s: %d, %s", page, code, body)
		}
	}
	eventually(t, "diff is empty", func() bool { return l.isInSync(t) })
	rules := l.ns.NFT(t, "list", "ruleset")
	if connections := strings.Contains(rules, `log prefix "connection"`); connections != strings.Contains(fmt.Sprint(c.after), "connections") {
		t.Errorf("connections are logged: %v", connections)
	}
	kept := !c.fine && c.bad == ""
	status := ask(t, l.ns, "status").stdout
	if strings.Contains(status, "Balance gone") != kept || kept && !strings.Contains(status, "served since ") {
		t.Errorf("kept %v, status: %s", kept, status)
	}
	switch {
	case kept:
		l.answers(t, "203.0.113.3", "10.1.0.2")
	case c.bad != "":
		l.answers(t, "203.0.113.9", "10.1.0.1")
	}
	if !kept {
		return
	}
	l.write(t, "bad.yaml", balanceText("bad", "203.0.113.9", "10.1.0.1"))
	l.answers(t, "203.0.113.9", "10.1.0.1")
	eventually(t, "what no file has is gone", func() bool {
		return !strings.Contains(l.ns.NFT(t, "list", "ruleset"), "203.0.113.3 ") && l.isInSync(t)
	})
	if status := ask(t, l.ns, "status").stdout; strings.Contains(status, "gone") {
		t.Errorf("status at the end: %s", status)
	}
}

func (l *restartLab) isInSync(t *testing.T) bool {
	r := ask(t, l.ns, "diff", "-f", l.dir)
	return r.code == 0 && r.stdout == "No changes.\n"
}
