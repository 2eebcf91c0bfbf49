package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// busy is a node with a daemon, and a client that makes connections to a Service all
// the time.
type busy struct {
	*netlab.Lab
	path    string // of the input
	dialled atomic.Int64
}

const busyInput = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {nftproxy.dev/ports: 8080-8089}}
spec:
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.128.0.2]}
- {addresses: [10.128.0.3]}
---
apiVersion: v1
kind: Service
metadata: {name: idle, namespace: shop}
spec:
  clusterIP: 10.96.0.11
  ports: [{name: http, port: 80}]
`

func newBusy(t *testing.T, flags ...string) *busy {
	t.Helper()
	b := &busy{Lab: netlab.TestLab(t, 2), path: writeFile(t, busyInput)}
	if err := b.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	daemon := start(t, b.Node.Namespace, append([]string{"nftproxy", "run", "-f", b.path, "--cluster-cidr=10.128.0.0/16", "--hostname-override=node-1"}, flags...)...)
	eventually(t, "rules and the metrics server", func() bool {
		return rendered(t, b.Node.Namespace, "10.96.0.10:80") && strings.Contains(daemon.log.String(), "msg=listening")
	})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for range await.Ticks(stop, 5*time.Millisecond) {
			if _, err := b.Client.Ask("tcp", netip.MustParseAddrPort("10.96.0.10:80"), 0); err != nil {
				t.Error(err)
				return
			}
			b.dialled.Add(1)
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return b
}

// screen is a terminal that a program draws on.
type screen struct {
	*pty.Winsize
	t      *testing.T
	master *os.File
	output netlab.LogBuffer
	seen   int // bytes of the output that were there before the last resize
}

// startOnTerminal starts the program in a namespace with a terminal of its own.
func startOnTerminal(t *testing.T, ns *netlab.Namespace, env []string, args ...string) (*screen, *exec.Cmd) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{Winsize: &pty.Winsize{Rows: 24, Cols: 100}, t: t, master: master}
	s.resize(0)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), beProgram+"=1", "TERM=xterm-256color", "LC_ALL=C.UTF-8", "NO_COLOR="), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := master.Read(buf)
			_, _ = s.output.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		master.Close()
		if t.Failed() {
			fmt.Fprintf(t.Output(), "screen: %q\n", s.output.String())
		}
	})
	return s, cmd
}

// resize changes the width of the terminal: the program draws everything again.
func (s *screen) resize(by int) {
	s.Cols = uint16(int(s.Cols) + by)
	if err := pty.Setsize(s.master, s.Winsize); err != nil {
		s.t.Fatal(err)
	}
	s.seen = len(s.output.String())
}

func (s *screen) press(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until the screen matches. Only changes are drawn, so the screen is
// resized until all of it was drawn in that state. Several spaces may be missing: the
// program moves the cursor instead.
func (s *screen) shows(pattern string) {
	s.t.Helper()
	expression := regexp.MustCompile(pattern)
	by, polls := 1, 0
	eventually(s.t, pattern, func() bool {
		if expression.MatchString(ansi.Strip(s.output.String()[s.seen:])) {
			return true
		}
		if polls++; polls%50 == 0 {
			s.resize(by)
			by = -by
		}
		return false
	})
}

// TestTop watches real connections on a real terminal: rates, a change as it comes, a
// filter, the detail of a Service, and the end by q (11.17).
func TestTop(t *testing.T) {
	b := newBusy(t, "--endpoint-metrics")
	s, cmd := startOnTerminal(t, b.Node.Namespace, nil, "top")
	s.shows(`shop/web *[0-9,.]*[1-9][0-9,.]* *█+`)
	s.shows(`node-1`)
	if !strings.Contains(s.output.String(), "\x1b[1;31m") && !strings.Contains(s.output.String(), "\x1b[36m") {
		t.Error("no colours")
	}
	if err := os.WriteFile(b.path, []byte(strings.Replace(busyInput, "10.96.0.11", "10.96.0.12", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.shows(`ago *change.*shop/idle`)
	s.press("/web\r")
	s.shows(`filter: web`)
	s.press("\r")
	s.shows(`10\.96\.0\.10:80 *ClusterIP *[0-9,.]*[1-9]`)
	s.shows(`-> *10\.128\.0\.3:8080 *[0-9,.]*[1-9]`)
	s.press("q")
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
	// The end of the output may still be on its way.
	eventually(t, "the screen from before", func() bool { return strings.Contains(s.output.String(), "\x1b[?1049l") })
}

// TestTopNoColor uses no colour with NO_COLOR.
func TestTopNoColor(t *testing.T) {
	b := newBusy(t)
	s, cmd := startOnTerminal(t, b.Node.Namespace, []string{"NO_COLOR=1"}, "top")
	s.shows(`connections are not counted: start nftproxy with --service-metrics`)
	if m := regexp.MustCompile("\x1b\\[([0-9;]*;)?(3[0-9]|38;[0-9;]*|9[0-7])m").FindString(s.output.String()); m != "" {
		t.Errorf("colour %q", m)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

// runProcess runs a command line in a process of its own in a namespace: an HTTP client
// dials on any thread.
func runProcess(t *testing.T, ns *netlab.Namespace, args ...string) result {
	t.Helper()
	p := start(t, ns, append([]string{"nftproxy"}, args...)...)
	_ = p.Wait() // the code says it
	return result{p.ProcessState.ExitCode(), p.output.String(), p.log.String()}
}

// TestTopOnce prints a sample where there is no terminal (11.18).
func TestTopOnce(t *testing.T) {
	b := newBusy(t, "--service-metrics")
	r := runProcess(t, b.Node.Namespace, "top", "-o", "json")
	var got struct {
		Totals    struct{ Connections int64 }
		PerSecond struct {
			Total    float64
			Services map[string]float64
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 || got.PerSecond.Services["shop/web"] <= 0 || got.PerSecond.Total != got.PerSecond.Services["shop/web"] ||
		got.Totals.Connections > b.dialled.Load()+1 {
		t.Errorf("code %d, %v: %+v, dialled %d\n%s%s", r.code, err, got, b.dialled.Load(), r.stdout, r.stderr)
	}
	r = runProcess(t, b.Node.Namespace, "top", "--filter", "IDLE")
	if r.code != 0 || !regexp.MustCompile(`(?m)^  shop/idle +0 +0 +0 !$`).MatchString(r.stdout) || strings.Contains(r.stdout, "\n  shop/web") {
		t.Errorf("code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	for args, want := range map[string]string{"top --once wbe": `no Service is named "wbe": did you mean shop/web?`, "top shop/wbe": `no Service is named "shop/wbe": did you mean shop/web?`} {
		if r := runProcess(t, b.Node.Namespace, strings.Fields(args)...); r.code != cli.CodeError || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: code %d, %s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	r = runProcess(t, b.Node.Namespace, "top", "--once", "web")
	if r.code != 0 || !strings.Contains(r.stdout, "-> 10.128.0.2:8080") || !strings.Contains(r.stdout, "-> 10.128.0.2\n") || !strings.Contains(r.stdout, "--endpoint-metrics") {
		t.Errorf("code %d, %s%s", r.code, r.stdout, r.stderr)
	}
}

// TestTopWithoutDaemon says what to do (11.18).
func TestTopWithoutDaemon(t *testing.T) {
	address := unusedAddress()
	r := execute("", "top", "--metrics-bind-address", address)
	if want := fmt.Sprintf(`no daemon answers at %s`, address); r.code != cli.CodeError || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, `start "nftproxy run"`) {
		t.Errorf("code %d, %s", r.code, r.stderr)
	}
	for args, want := range map[string]string{
		"-o xml":                           `--output: unknown format "xml": use text, json or yaml`,
		"--metrics-bind-address localhost": `"localhost" is not an address`,
		"a/b c/d":                          "at most 1 arg",
	} {
		if r := execute("", append([]string{"top"}, strings.Fields(args)...)...); r.code != cli.CodeError || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: code %d, %s", args, r.code, r.stderr)
		}
	}
}

// TestDescribeEndpointConnections: describe has the connections of each endpoint, from
// the daemon and from the kernel (11.23).
func TestDescribeEndpointConnections(t *testing.T) {
	b := newBusy(t, "--endpoint-metrics")
	row := regexp.MustCompile(`(?m)^  10\.128\.0\.3:8080 .*50\.0 % +[1-9][0-9]*$`)
	for _, where := range [][]string{nil, {"--metrics-bind-address", unusedAddress()}} {
		var r result
		eventually(t, "connections of an endpoint", func() bool {
			r = runProcess(t, b.Node.Namespace, append([]string{"describe", "shop/web"}, where...)...)
			return row.MatchString(r.stdout)
		})
		if strings.Contains(r.stdout, "no daemon") == (where == nil) {
			t.Errorf("%v: %s%s", where, r.stdout, r.stderr)
		}
	}
	through, err := b.Client.Open("tcp", netip.MustParseAddrPort("10.96.0.10:8080"), 0) // of a range
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	r := runProcess(t, b.Node.Namespace, "describe", "shop/web", "--connections")
	if !regexp.MustCompile(`(?m)^  10\.128\.0\.[23] .*50\.0 % +1 +1$`).MatchString(r.stdout) {
		t.Errorf("no open connection through the range:\n%s%s", r.stdout, r.stderr)
	}
}
