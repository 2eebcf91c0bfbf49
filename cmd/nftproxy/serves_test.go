package main

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// server accepts connections to port 8081 of a pod, or refuses them.
type server struct {
	pod *netlab.Host
	l   net.Listener
}

func (s *server) set(t *testing.T, up bool) {
	t.Helper()
	if !up {
		if err := s.l.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	var err error
	if s.l, err = s.pod.Listen("tcp", netip.AddrPortFrom(s.pod.IPv4, 8081).String()); err != nil {
		t.Fatal(err)
	}
	go func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}(s.l)
}

const announcedBalance = `
kind: Balance
name: web
listen: 203.0.113.10:80
backends: ["FIRST:8081", "SECOND:8081"]
check: {tcp, interval: 200ms, rise: 1, fall: 2}
`

// TestStatusServes: 11.24. The script of docs/ecmp.md announces while a server is usable, and
// keeps what is announced while nftproxy is down.
func TestStatusServes(t *testing.T) {
	lab := netlab.TestLab(t, 2)
	ns := lab.Node.Namespace
	if r := ask(t, ns, "status", "--serves", "web"); r.code != cli.CodeError || !strings.Contains(r.stderr, "no daemon answers") {
		t.Errorf("without a daemon: %d %s%s", r.code, r.stdout, r.stderr)
	}
	first, second := &server{pod: lab.Pods[0]}, &server{pod: lab.Pods[1]}
	first.set(t, true)
	second.set(t, true)
	file := writeFile(t, strings.NewReplacer("FIRST", first.pod.IPv4.String(), "SECOND", second.pod.IPv4.String()).Replace(announcedBalance))
	daemon := func() *process {
		return startCommand(t, ns, asNftproxy(t, "run", "-f", file, "--healthz-bind-address", ""))
	}
	p := daemon()
	answers := func(code int, text string) {
		t.Helper()
		eventually(t, text, func() bool {
			r := ask(t, ns, "status", "--serves", "web")
			return r.code == code && strings.HasPrefix(r.stdout+r.stderr, text)
		})
	}
	calls, messages := followScript(t, ns)
	answers(0, "default/web serves: 2 of 2 servers usable\n")
	eventually(t, "the announcement", func() bool { return calls() == announce })
	second.set(t, false)
	answers(0, "default/web serves: 1 of 2 servers usable; "+second.pod.IPv4.String()+": its health check fails: connect: refused")
	if r := ask(t, ns, "status", "--problems"); r.code != cli.CodeNo {
		t.Errorf("a failing server is a problem: %d", r.code)
	}
	first.set(t, false)
	answers(cli.CodeNo, "default/web does not serve: 0 of 2 servers usable; ")
	eventually(t, "the withdrawal", func() bool { return calls() == withdraw })
	if r := ask(t, ns, "status"); r.code != 0 {
		t.Errorf("the node is healthy: %d %s", r.code, r.stdout)
	}
	first.set(t, true)
	eventually(t, "the announcement", func() bool { return calls() == announce })
	before := strings.Count(messages.String(), "no daemon answers")
	p.kill()
	if r := ask(t, ns, "status", "--serves", "web"); r.code != cli.CodeError {
		t.Errorf("without a daemon: %d %s", r.code, r.stdout)
	}
	eventually(t, "answers without a daemon", func() bool { return strings.Count(messages.String(), "no daemon answers") > before+1 })
	if last := calls(); last != announce {
		t.Errorf("%q while nftproxy is down", last)
	}
	daemon()
	answers(0, "default/web serves: 1 of 2 servers usable; ")
	for args, want := range map[string]string{
		"--serves wbe":              `no Balance is named "wbe": did you mean default/web?`,
		"--serves web other":        "--serves is about one Service or Balance: leave out",
		"--serves web --problems":   "--serves is about one Service or Balance: leave out",
		"--serves web -n default":   "--serves is about one Service or Balance: leave out",
		"--serves web -A":           "--serves is about one Service or Balance: leave out",
		"--serves web -o xml":       "unknown format",
		"--serves default/web -o=":  "unknown format",
		"--serves= --color=nothing": "unknown value",
	} {
		if r := ask(t, ns, append([]string{"status"}, strings.Fields(args)...)...); r.code != cli.CodeError || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %d %s%s, want %q", args, r.code, r.stdout, r.stderr, want)
		}
	}
	if r := ask(t, ns, "status", "--serves", "default/web", "-o", "json"); r.code != 0 || !strings.Contains(r.stdout, `"serves": true`) || !strings.Contains(r.stdout, `"usableServers": 1`) {
		t.Errorf("JSON: %d %s", r.code, r.stdout)
	}
}

// Arguments of ip in that script.
const (
	announce = "route replace blackhole 198.51.100.10/32"
	withdraw = "route flush exact 198.51.100.10/32"
)

// followScript runs the script of docs/ecmp.md with an ip that notes its arguments, and
// returns a function that returns the last ones, and what the script prints as errors.
func followScript(t *testing.T, ns *netlab.Namespace) (last func() string, messages *netlab.LogBuffer) {
	t.Helper()
	found := regexp.MustCompile("(?s)<!-- begin follow -->\n\n```sh\n(.*?)```").FindStringSubmatch(readText(t, "../../docs/ecmp.md"))
	if found == nil {
		t.Fatal("no script")
	}
	dir := t.TempDir()
	script, calls := filepath.Join(dir, "follow"), filepath.Join(dir, "calls")
	program, err := filepath.Abs(os.Args[0])
	err = errors.Join(err, os.WriteFile(script, []byte(strings.Replace(found[1], "sleep 1", "sleep 0.1", 1)), 0o755),
		os.WriteFile(filepath.Join(dir, "ip"), []byte("#!/bin/sh\necho \"$*\" >>"+calls+"\n"), 0o755),
		os.Symlink(program, filepath.Join(dir, "nftproxy")))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(script)
	c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), beProgram+"=1")
	messages = &netlab.LogBuffer{}
	c.Stderr = messages
	if err := ns.Start(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // the error is the signal
	})
	return func() string {
		data, _ := os.ReadFile(calls) // it is not there before the first call
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		return lines[len(lines)-1]
	}, messages
}
