package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/control/client"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// controlLab is a drainLab whose nftproxy reads a Balance over the first two of three pods, and
// has a control socket.
type controlLab struct {
	*drainLab
	conf, socket, changes string
	daemon                *process
}

const controlled = `# the shop, as the operator wrote it
kind: Balance
name: web
listen: [10.96.0.10:80, 10.96.0.10:80/udp]   # both
backends:
  - FIRST:8080    # the old one
  - SECOND:8080
`

func newControlLab(t *testing.T) *controlLab {
	t.Helper()
	dir := t.TempDir()
	l := &controlLab{newDrainLab(t), filepath.Join(dir, "web.yaml"), filepath.Join(dir, "run", "control.sock"), filepath.Join(dir, "state", "changes.yaml"), nil}
	l.file = filepath.Join(dir, "state", "drain.yaml")
	l.edit(strings.NewReplacer("FIRST", l.pod(0), "SECOND", l.pod(1)).Replace(controlled))
	l.run0()
	return l
}

func (l *controlLab) pod(i int) string { return l.Pods[i].IPv4.String() }

// edit replaces the file of the Balance.
func (l *controlLab) edit(text string) {
	l.t.Helper()
	draft := l.conf + ".new"
	if err := os.WriteFile(draft, []byte(text), 0o640); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(draft, l.conf); err != nil {
		l.t.Fatal(err)
	}
}

// run0 runs nftproxy.
func (l *controlLab) run0() {
	l.t.Helper()
	l.daemon = startCommand(l.t, l.Node.Namespace, asNftproxy(l.t, "run", "-f", l.conf, "--drain-file", l.file, "--changes-file", l.changes,
		"--control-socket", l.socket, "--metrics-bind-address", "127.0.0.1:7011"))
	eventually(l.t, "the first sync", func() bool {
		_, text := get(l.t, l.Node.Namespace, "http://127.0.0.1:7011"+api.DrainPath)
		return strings.Contains(text, `"pending":false`)
	})
}

// change runs a command that changes servers, and returns its result.
func (l *controlLab) change(words ...string) (a api.Controlled, r result) {
	l.t.Helper()
	r = ask(l.t, l.Node.Namespace, append(words, "--control-socket", l.socket, "-o", "json")...)
	if r.code == 0 {
		if err := json.Unmarshal([]byte(r.stdout), &a); err != nil {
			l.t.Fatalf("%v: %s", err, r.stdout)
		}
	}
	return a, r
}

// must runs a command, and compares whether it has changed something, now and the second time.
func (l *controlLab) must(words ...string) {
	l.t.Helper()
	for _, want := range []bool{true, false} {
		if a, r := l.change(words...); r.code != 0 || a.Changed != want {
			l.t.Fatalf("%s: exit code %d, changed %v, want %v: %s%s", strings.Join(words, " "), r.code, a.Changed, want, r.stdout, r.stderr)
		}
	}
}

var controlledAddress = netip.MustParseAddrPort("10.96.0.10:80")

// serves compares how many new connections of TCP and flows of UDP the pods answer with their weights:
// the slots of unequal weights are in no order.
func (l *controlLab) serves(want ...int) {
	l.t.Helper()
	total := 0
	for _, w := range want {
		total += w
	}
	for _, network := range []string{"tcp", "udp"} {
		const made = 60
		got := l.answering(made, network, controlledAddress)
		for i, w := range want {
			if n, fair := got[l.Pods[i].Name], made*w/total; n < fair/2 || n > 2*fair {
				l.t.Errorf("%s: %s answers %d of %d, want weights %v: %v", network, l.Pods[i].Name, n, made, want, got)
			}
		}
	}
}

// 9.37, 9.38: servers change without an edit of the file, under connections that stay; the changes
// are seen, outlast a restart, and end by undo or by an edit of their server.
func TestRuntimeChanges(t *testing.T) {
	l := newControlLab(t)
	l.serves(1, 1, 0)
	kept := l.openTo(l.Pods[1].Name, "tcp", controlledAddress)
	l.must("set", "web", l.pod(0), "weight=2")
	l.serves(2, 1, 0)
	l.must("add", "web", l.pod(2)+":8080", "weight=3")
	l.serves(2, 1, 3)
	l.must("set", "web", l.pod(1)+":8080", "weight=0")
	l.serves(2, 0, 3)
	if a, err := kept.Ask(); err != nil || a.Name != l.Pods[1].Name {
		t.Errorf("a connection does not stay: %v, %v", a, err)
	}
	l.seen()
	l.refused()

	l.stop(l.daemon)
	l.separate()
	l.run0()
	l.must("set", "web", l.pod(2), "weight=2")
	l.must("remove", "web", l.pod(1))
	l.serves(1, 0, 1)

	text := l.content()
	l.edit("# a remark\n" + text + "description: another one\n") // not of a server
	eventually(t, "the edit of the file", func() bool { return strings.Contains(l.succeeds("describe", "web"), "another one") })
	if a, _ := l.change("set"); len(a.Changes) != 3 {
		t.Errorf("an edit of something else ends changes: %+v", a.Changes)
	}
	l.edit(strings.Replace(text, l.pod(0)+":8080  ", "{address: "+l.pod(0)+":8080, weight: 4}", 1))
	eventually(t, "the end of the change", func() bool { a, _ := l.change("set"); return len(a.Changes) == 2 })
	l.serves(2, 0, 1)
	l.must("undo", "web")
	l.edit(text)
	eventually(t, "the file alone", func() bool { r := l.run("diff", "-f", l.conf); return r.code == 0 && r.stderr == "" })
	l.serves(1, 1, 0)
	if text, err := os.ReadFile(l.file); err != nil || strings.Contains(string(text), "changes:") {
		t.Errorf("%s, %v", text, err)
	}
}

// separate puts the changes into the file that version 0.2 has for them, which the next process takes over.
func (l *controlLab) separate() {
	l.t.Helper()
	text, err := os.ReadFile(l.file)
	drains, changes, found := strings.Cut(string(text), "changes:\n")
	if err == nil && !found {
		err = fmt.Errorf("no changes in %s", text)
	}
	err = errors.Join(err, os.MkdirAll(filepath.Dir(l.changes), 0o755), os.WriteFile(l.file, []byte(drains), 0o600))
	if err = errors.Join(err, os.WriteFile(l.changes, []byte("kind: RuntimeChanges\nchanges:\n"+changes), 0o600)); err != nil {
		l.t.Fatal(err)
	}
}

func (l *controlLab) content() string {
	l.t.Helper()
	text, err := os.ReadFile(l.conf)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text)
}

// seen: status, describe, diff and the log have the changes.
func (l *controlLab) seen() {
	l.t.Helper()
	added := l.pod(2) + ":8080"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "--problems"}, ""},
		{[]string{"status"}, "Balance web: " + added + ": added with weight 3; by uid 0, pid [0-9]+ at "},
		{[]string{"describe", "web"}, added + ": weight 3, in the file absent"},
		{[]string{"diff", "-f", l.conf}, "No changes."},
	} {
		r := l.run(c.args...)
		if c.args[0] == "diff" && !strings.Contains(r.stderr, "3 runtime changes that no file has") {
			l.t.Errorf("diff does not name the changes: %s", r.stderr)
		}
		if r.code != 0 || !regexp.MustCompile(c.want).MatchString(r.stdout) {
			l.t.Errorf("%s: exit code %d, want %q:\n%s%s", strings.Join(c.args, " "), r.code, c.want, r.stdout, r.stderr)
		}
	}
	audit := regexp.MustCompile(`runtime change.* command=add .*object="Balance web" server=` + added + ` old=absent new="weight 3" uid=0 pid=[0-9]+`)
	eventually(l.t, "the change in the log", func() bool { return audit.MatchString(l.daemon.log.String()) })
	if log := l.daemon.log.String(); strings.Count(log, "command=add") != 1 {
		l.t.Errorf("the log has not one change:\n%s", log)
	}
	if r := ask(l.t, l.Node.Namespace, "set", "--control-socket", l.socket); !strings.Contains(r.stdout, "weight 2") || strings.Count(r.stdout, "\n") != 4 {
		l.t.Errorf("the list:\n%s%s", r.stdout, r.stderr)
	}
}

// refused: a mistake is an error with the name of the field, and changes nothing.
func (l *controlLab) refused() {
	l.t.Helper()
	before, _ := l.change("set")
	for words, want := range map[string]string{
		"set web " + l.pod(0) + " weight=101":            `weight: "101" is not a weight: use 0 to 100`,
		"set web " + l.pod(0) + " wieght=1":              "did you mean weight?",
		"set web " + l.pod(0):                            "weight: missing",
		"set web 10.9.9.9 weight=1":                      "server: default/web has no server 10.9.9.9",
		"set wbe " + l.pod(0) + " weight=1":              "did you mean default/web?",
		"add web server weight=1":                        `server: "server" is not a server`,
		"add web fd00::2":                                "no address of its family, IPv6",
		"remove web " + l.pod(2) + " " + l.pod(1):        "one argument too many",
		"disable web 10.9.9.9":                           "Balance web does not have the server 10.9.9.9",
		"enable web 10.9.9.9":                            "server: default/web has no server 10.9.9.9",
		"undo":                                           "name a Balance, or all of them with --all",
		"set web " + l.pod(0) + " weight=1 -f " + l.conf: "add --write",
	} {
		if _, r := l.change(strings.Fields(words)...); r.code != cli.CodeError || !strings.Contains(r.stderr, want) {
			l.t.Errorf("%s: exit code %d, want %q: %s%s", words, r.code, want, r.stdout, r.stderr)
		}
	}
	if after, _ := l.change("set"); len(after.Changes) != len(before.Changes) {
		l.t.Errorf("changes: %+v, want %+v", after.Changes, before.Changes)
	}
}

// 9.39: the last server stays; disabled servers are entries of the drain list, and return.
func TestDisable(t *testing.T) {
	l := newControlLab(t)
	l.must("disable", "web", l.pod(0))
	l.serves(0, 1, 0)
	if out := l.succeeds("drain"); !strings.Contains(out, l.pod(0)) || !strings.Contains(out, "default/web only") {
		t.Errorf("drain does not list it:\n%s", out)
	}
	for words, want := range map[string]string{
		"disable web " + l.pod(1):           "would have no other server",
		"remove web " + l.pod(1):            "no server left that takes connections over IPv4",
		"set web " + l.pod(1) + " weight=0": "no server left that takes connections over IPv4",
	} {
		if _, r := l.change(strings.Fields(words)...); r.code != cli.CodeError || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit code %d: %s%s", words, r.code, r.stdout, r.stderr)
		}
	}
	l.serves(0, 1, 0)
	l.must("enable", "web", l.pod(0))
	l.serves(1, 1, 0)
	l.must("remove", "web", l.pod(0))
	if _, r := l.change("remove", "web", l.pod(1), "--force"); r.code != 0 {
		t.Errorf("--force: %s", r.stderr)
	}
	if _, err := l.Client.Ask("tcp", controlledAddress, 0); err == nil {
		t.Error("a Balance without servers answers")
	}
	l.must("undo", "--all")
	l.serves(1, 1, 0)
}

// 9.40: --write changes the file, and nothing but the server in it; the file alone counts then.
func TestWriteChanges(t *testing.T) {
	l := newControlLab(t)
	text := l.content()
	step := func(want func(string) string, words ...string) {
		t.Helper()
		l.must(append(words, "--write")...)
		if text = want(text); l.content() != text {
			t.Errorf("%s: the file is\n%s\nwant\n%s", strings.Join(words, " "), l.content(), text)
		}
		if a, _ := l.change("set"); len(a.Changes) > 0 {
			t.Errorf("%s: the file does not count alone: %+v", strings.Join(words, " "), a.Changes)
		}
	}
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	step(replace("- "+l.pod(0)+":8080 ", "- {address: "+l.pod(0)+":8080, weight: 2} "), "set", "web", l.pod(0), "weight=2")
	l.serves(2, 1, 0)
	step(replace(":8080\n", ":8080\n  - "+l.pod(2)+":8080\n"), "add", "web", l.pod(2)+":8080")
	l.serves(2, 1, 1)
	step(replace("  - "+l.pod(1)+":8080\n", ""), "remove", "web", l.pod(1))
	l.serves(2, 0, 1)
	if about, err := os.Stat(l.conf); err != nil || about.Mode().Perm() != 0o640 {
		t.Errorf("permissions %v, %v", about.Mode(), err)
	}
	l.stop(l.daemon)
	words := []string{"set", "web", l.pod(2), "weight=5", "--write"}
	if _, r := l.change(words...); r.code != cli.CodeError || !strings.Contains(r.stderr, "no running nftproxy has a control socket") {
		t.Errorf("without nftproxy and a file: %d %s", r.code, r.stderr)
	}
	l.must(append(words, "-f", l.conf)...)
	if !strings.Contains(l.content(), "weight: 5") {
		t.Errorf("without nftproxy, the file is\n%s", l.content())
	}
}

// BenchmarkControl is a change of a weight, from the request to the rules, beside 10,000 Balances.
func BenchmarkControl(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkControl(b, n) })
	}
}

func benchmarkControl(b *testing.B, n int) {
	lab := netlab.TestLab(b, 2)
	var text strings.Builder
	for i := range n {
		a := netip.AddrFrom4([4]byte{203, 0, byte(i / 250), byte(i%250 + 1)})
		fmt.Fprintf(&text, "kind: Balance\nname: web-%d\nlisten: %s:80\nbackends: [10.1.1.2:8080, 10.1.1.3:8080]\n---\n", i, a)
	}
	dir := b.TempDir()
	conf, socket := filepath.Join(dir, "web.yaml"), filepath.Join(dir, "control.sock")
	if err := os.WriteFile(conf, []byte(text.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	p := exec.Command(os.Args[0], "run", "-f", conf, "--changes-file", filepath.Join(dir, "changes.yaml"), "--drain-file", filepath.Join(dir, "drain.yaml"),
		"--control-socket", socket)
	p.Env = append(os.Environ(), beProgram+"=1", "KUBERNETES_SERVICE_HOST=")
	if err := lab.Node.Start(p); err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = p.Process.Kill(), p.Wait() }()
	c := client.NewClient(socket)
	defer c.Close()
	netlab.Eventually(b, time.Minute, func() error {
		_, err := c.Do(b.Context(), &api.Control{Action: api.ControlUndo, Balance: "web-7"})
		return err
	})
	weight := 1
	for b.Loop() {
		weight = 3 - weight
		a, err := c.Do(b.Context(), &api.Control{Action: api.ControlSet, Balance: "web-7", Server: "10.1.1.2", Weight: &weight})
		if err != nil || !a.Changed {
			b.Fatalf("%+v, %v", a, err)
		}
	}
}
