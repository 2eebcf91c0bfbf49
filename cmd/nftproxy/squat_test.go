package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/control"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/tarball"
)

// squatter answers in place of a daemon.
type squatter struct {
	victim string // a file that it would have root write

	mu    sync.Mutex
	asked []string // paths
}

// ServeHTTP gives the answers that a command might follow.
func (s *squatter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Path)
	s.mu.Unlock()
	var answer any = map[string]string{"evil": "content"}
	switch r.URL.Path {
	case api.DrainPath:
		answer = api.Drains{Drains: model.Drains{File: s.victim, Drained: []model.DrainEntry{}, Endpoints: []string{"10.66.6.6"}}}
	case api.BasisPath:
		answer = api.Basis{Version: api.BasisVersion, Settings: map[string]string{"scheduler": "random"}}
	case api.StatusPath:
		answer = api.Status{From: api.FromDaemon, Healthy: true, Daemon: api.Daemon{Node: "squatter"}, Findings: api.Findings{Problems: []api.Problem{
			{Object: model.Object{Kind: "Service", Namespace: "a", Name: "../../../../../../etc/cron.d/evil"}, Reason: "X", Message: "password: correct horse battery\nAuthorization: Negotiate YIIabcdefSECRET9"}}}}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// paths returns what was asked for since the last call.
func (s *squatter) paths() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, s.asked = s.asked, nil
	return out
}

// listenAt has a squatter answer at the default address of a daemon.
func (s *squatter) listenAt(t *testing.T, ns *netlab.Namespace) {
	t.Helper()
	var l net.Listener
	err := ns.Do(func() (err error) { l, err = net.Listen("tcp", api.DefaultAddress.String()); return err })
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: s}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

// TestSquattedPort: 12.73. No command of root asks the program that has the port of a daemon, whether none
// runs or one at another address, unless a flag names the address; then only reading ones do.
func TestSquattedPort(t *testing.T) {
	ns, dir := namespaceWithLoopback(t), t.TempDir()
	s := &squatter{victim: filepath.Join(dir, "victim.conf")}
	const precious = "precious=1\n"
	if err := os.WriteFile(s.victim, []byte(precious), 0o600); err != nil {
		t.Fatal(err)
	}
	s.listenAt(t, ns)
	input, list := writeFile(t, service), filepath.Join(dir, "drain.yaml")
	commands := [][]string{
		{"undrain", "--all", "--drain-file", list}, {"drain", "10.128.1.1", "--force", "--drain-file", list}, {"drain", "--drain-file", list},
		{"undrain", "10.128.1.1", "--drain-file", list}, {"diff", "-f", input, "--drain-file", list}, {"apply", "-f", input, "--drain-file", list},
		{"status"}, {"status", "--serves", "web"}, {"describe", "web"}, {"explain", "tcp", "10.96.0.10:80"}, {"observe"}, {"top", "--once"},
		{"bundle", "--file", filepath.Join(dir, "a.tar.gz")}, {"__complete", "status", "-n", ""}, {"__complete", "drain", "10."},
	}
	tried := func(when string) {
		t.Helper()
		for _, args := range commands {
			r := ask(t, ns, args...)
			if strings.Contains(r.stdout+r.stderr, "squatter") || strings.Contains(r.stderr, "scheduler=random") || strings.Contains(r.stdout, "10.66.6.6") {
				t.Errorf("%s, %q follows another program: %+v", when, args, r)
			}
			if asked := s.paths(); len(asked) > 0 {
				t.Errorf("%s, %q asks another program for %q", when, args, asked)
			}
			_ = os.Remove(filepath.Join(dir, "a.tar.gz"))
		}
	}
	tried("without a daemon")
	for _, args := range commands[:6] { // actions and plans
		if r := ask(t, ns, append(args, "--metrics-bind-address", api.DefaultAddress.String())...); len(s.paths()) > 0 || strings.Contains(r.stderr, "scheduler=random") {
			t.Errorf("%q with the address: %+v", args, r)
		}
	}
	if r := ask(t, ns, "status", "--metrics-bind-address", api.DefaultAddress.String()); !strings.Contains(r.stdout, "squatter") {
		t.Errorf("a flag names the address, and status does not read there: %+v", r)
	}
	s.paths()
	startCommand(t, ns, asNftproxy(t, "run", "-f", input, "--drain-file", list, "--hostname-override", "node-7", "--metrics-bind-address", "127.0.0.1:10250"))
	eventually(t, "an answer of the daemon", func() bool { return strings.Contains(ask(t, ns, "status").stdout, "node       node-7\n") })
	tried("beside a daemon")
	if text, err := os.ReadFile(s.victim); err != nil || string(text) != precious {
		t.Errorf("the file of another program: %q, %v", text, err)
	}
}

// TestSquattedBundle: 18.21. Names that no object has are no paths in an archive.
func TestSquattedBundle(t *testing.T) {
	ns, file := namespaceWithLoopback(t), filepath.Join(t.TempDir(), "a.tar.gz")
	s := new(squatter)
	s.listenAt(t, ns)
	if r := ask(t, ns, "bundle", "--metrics-bind-address", api.DefaultAddress.String(), "--file", file); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for name, text := range tarball.Unpack(t, file) {
		if strings.Contains(name, "..") || strings.Contains(name, "cron.d") || strings.HasSuffix(name, "evil.json") {
			t.Errorf("a file %s", name)
		}
		if strings.Contains(text, "battery") || strings.Contains(text, "SECRET9") {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
}

// squatSocket listens at a control socket, whose path the environment has, without being a daemon.
func squatSocket([]string) int {
	l, err := net.Listen("unix", os.Getenv("NFTPROXY_TEST_SOCKET"))
	if err == nil {
		err = http.Serve(l, new(squatter))
	}
	return codeOf(err)
}

// TestSquattedSocket: 12.86. A process that is user 0 and named nftproxy, as pods may be, and cannot change
// the rules, is not asked, not even at the path of a daemon's socket.
func TestSquattedSocket(t *testing.T) {
	netlab.SkipInUserNamespace(t, "a process of root without capabilities")
	ns := namespaceWithLoopback(t)
	var path string
	if err := ns.Do(func() error { path = control.DefaultPath(); return os.MkdirAll(filepath.Dir(path), 0o700) }); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(path) // of a daemon that was killed in a namespace with the same number
	input := writeFile(t, service)
	program := asNftproxy(t).Path
	cmd := exec.Command("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", program, "run", "-f", input, "--control-socket", path)
	cmd.Env = append(os.Environ(), standFor+"=nftproxy at a socket", "NFTPROXY_TEST_SOCKET="+path)
	var log netlab.LogBuffer
	cmd.Stderr = &log
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		fmt.Fprint(t.Output(), &log)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.Remove(path)
	})
	eventually(t, "the socket", func() bool {
		c, err := net.Dial("unix", path)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	if r := ask(t, ns, "diff", "-f", input, "--drain-file", ""); r.code != cli.CodeNo || strings.Contains(r.stderr, "as the running nftproxy") {
		t.Errorf("diff follows it: %+v", r)
	}
	r := ask(t, ns, "status")
	if want := fmt.Sprintf("process %d (\"nftproxy\") cannot change the rules here, so it is not nftproxy", cmd.Process.Pid); r.code != cli.CodeError || !strings.Contains(r.stderr, want) {
		t.Errorf("%+v, want %s", r, want)
	}
}
