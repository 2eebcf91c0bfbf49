package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/control"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func namespaceWithLoopback(t *testing.T) *netlab.Namespace {
	t.Helper()
	return netlab.TestLab(t, 0).Node.Namespace
}

// asNftproxy returns a command that starts this test program under that name, by which
// processes are found.
func asNftproxy(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	name := filepath.Join(t.TempDir(), "nftproxy")
	if err := os.Symlink(os.Args[0], name); err != nil {
		t.Fatal(err)
	}
	return exec.Command(name, args...)
}

// ask runs a command in a namespace as a process of its own: the threads that connect to
// a daemon must be there, too.
func ask(t *testing.T, ns *netlab.Namespace, args ...string) result {
	t.Helper()
	p := start(t, ns, append([]string{"nftproxy"}, args...)...)
	_ = p.Wait() // the code says it
	return result{code: p.ProcessState.ExitCode(), stdout: p.output.String(), stderr: p.log.String()}
}

// TestFindDaemon finds a daemon at an address that is not the default one: by the
// process that owns the tables, by the name of the process, and by its configuration
// (12.73).
func TestFindDaemon(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "config.conf")
	content := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmetricsBindAddress: 127.0.0.1:7003\n" +
		"healthzBindAddress: 0.0.0.0:0\nconntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}\n"
	if err := os.WriteFile(conf, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		dir  string
	}{
		{"owner", []string{"--metrics-bind-address", "127.0.0.1:7001"}, ""},
		{"all addresses", []string{"--metrics_bind_address=[::]:7001", "--no-table-owner"}, ""},
		{"deprecated flag", []string{"--metrics-bind-address=127.0.0.1", "--metrics-port=7002", "--no-table-owner"}, ""},
		{"file", []string{"--config", conf, "--no-table-owner"}, ""},
		{"relative file", []string{"--config", "config.conf"}, dir},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := namespaceWithLoopback(t)
			cmd := asNftproxy(t, append([]string{"run", "-f", writeFile(t, service), "--hostname-override", "node-7"}, c.args...)...)
			cmd.Dir = c.dir
			startCommand(t, ns, cmd)
			eventually(t, "an answer of the daemon", func() bool {
				r := ask(t, ns, "status")
				return r.code == 0 && strings.Contains(r.stdout, "node       node-7\n")
			})
		})
	}
}

// TestFindBySocket: 12.73. Root asks at the control socket, wherever that is, also without a metrics server.
func TestFindBySocket(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("s", 107-len(dir)-1)) // as long as a path of a socket may be
	for name, c := range map[string]struct {
		args, env []string
	}{
		"default":           {[]string{"--metrics-bind-address", ""}, nil},
		"flag":              {[]string{"--control-socket", long}, nil},
		"runtime directory": {nil, []string{"RUNTIME_DIRECTORY=" + filepath.Join(dir, "run")}},
		"no owner":          {[]string{"--control-socket", filepath.Join(dir, "a", "b.sock"), "--no-table-owner"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ns := namespaceWithLoopback(t)
			cmd := asNftproxy(t, append([]string{"run", "-f", writeFile(t, service), "--hostname-override", "node-7", "--drain-file", ""}, c.args...)...)
			p := startWith(t, ns, cmd, c.env...)
			eventually(t, "an answer of the daemon", func() bool {
				r := ask(t, ns, "status")
				return r.code == 0 && strings.Contains(r.stdout, "node       node-7\n") && !strings.Contains(r.stdout, "from the kernel")
			})
			p.kill()
			if r := ask(t, ns, "status"); !strings.Contains(r.stdout, "from the kernel's tables") {
				t.Errorf("after its end: %+v", r)
			}
		})
	}
}

// TestFindInPod: 12.73. The socket of a process with another root directory, as in a pod, is found there, in an
// empty directory that had the mode 0777. Another process that listens at its path is not asked.
func TestFindInPod(t *testing.T) {
	ns := namespaceWithLoopback(t)
	program := asNftproxy(t, "run", "-f", writeFile(t, service), "--hostname-override", "node-7", "--drain-file", "", "--metrics-bind-address", "")
	cmd := exec.Command("unshare", append([]string{"-m", "sh", "-c", `mount -t tmpfs tmpfs /run && mkdir -m 0777 /run/nftproxy && exec "$@"`, "sh"}, program.Args...)...)
	p := startCommand(t, ns, cmd)
	eventually(t, "an answer of the daemon", func() bool { return strings.Contains(ask(t, ns, "status").stdout, "node       node-7\n") })
	var path string
	if err := ns.Do(func() error { path = control.DefaultPath(); return nil }); err != nil {
		t.Fatal(err)
	}
	path = fmt.Sprintf("/proc/%d/root%s", p.Process.Pid, path)
	if about, err := os.Stat(filepath.Dir(path)); err != nil || about.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", about, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := new(squatter)
	server := http.Server{Handler: s}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	want := fmt.Sprintf("process %d of user %d listens at %s, and is not asked", os.Getpid(), os.Geteuid(), path)
	if r := ask(t, ns, "status"); !strings.Contains(r.stdout, want) || len(s.paths()) > 0 {
		t.Errorf("another process at the socket: %+v, want %s", r, want)
	}
}

// TestFindNoDaemon says why a running daemon cannot be asked.
func TestFindNoDaemon(t *testing.T) {
	ns, other := namespaceWithLoopback(t), namespaceWithLoopback(t)
	file := writeFile(t, service)
	p := startCommand(t, other, asNftproxy(t, "run", "-f", file, "--healthz-bind-address", ""))
	eventually(t, "the daemon", func() bool { return ask(t, other, "status").code == 0 })
	r := ask(t, ns, "status")
	if want := "runs in another network namespace: ask it there, with \"nsenter -t "; r.code != cli.CodeError || !strings.Contains(r.stderr, want) {
		t.Errorf("another namespace: %d %s, want %q", r.code, r.stderr, want)
	}
	p.kill()

	startCommand(t, ns, asNftproxy(t, "run", "-f", file, "--healthz-bind-address", "", "--control-socket", "none"))
	eventually(t, "tables", func() bool { return ask(t, ns, "status").code == 0 })
	if r := ask(t, ns, "status"); !strings.Contains(r.stdout, "it has no socket: start it without --control-socket=none") || !strings.Contains(r.stdout, "from the kernel's tables") {
		t.Errorf("no socket: %s", r.stdout)
	}
	if r := ask(t, ns, "status", "--metrics-bind-address", "127.0.0.1"); r.code != 0 || strings.Contains(r.stdout, "from the kernel's tables") {
		t.Errorf("by its address: %+v", r)
	}
}

// TestDaemonOfConfig asks at the address of a configuration file.
func TestDaemonOfConfig(t *testing.T) {
	ns := namespaceWithLoopback(t)
	path := filepath.Join(t.TempDir(), "config.conf")
	if r := execute("", "run", "--write-config-to", path, "--metrics-bind-address", "127.0.0.1:7005"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if r := ask(t, ns, "status", "--config", path); r.code != cli.CodeError || !strings.Contains(r.stderr, "no daemon answers at 127.0.0.1:7005 ") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
	if r := ask(t, ns, "status", "--config", "/nowhere"); r.code != cli.CodeError || !strings.Contains(r.stderr, "/nowhere") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
	if r := ask(t, ns, "status", "--metrics-bind-address", "127.0.0.2"); r.code != cli.CodeError || !strings.Contains(r.stderr, "no daemon answers at 127.0.0.2:10249 ") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
}

// TestFindOnce: 12.73. A command connects to the socket of a daemon once.
func TestFindOnce(t *testing.T) {
	ns := namespaceWithLoopback(t)
	start(t, ns, "nftproxy", "run", "-f", writeFile(t, service), "--hostname-override", "node-7", "--metrics-bind-address", "")
	eventually(t, "an answer of the daemon", func() bool { return strings.Contains(ask(t, ns, "status").stdout, "node       node-7\n") })
	calls := filepath.Join(t.TempDir(), "calls")
	program := asNftproxy(t, "status")
	p := startCommand(t, ns, exec.Command("strace", append([]string{"-f", "-qq", "-e", "trace=connect", "-o", calls}, program.Args...)...))
	if err := p.Wait(); err != nil {
		t.Fatal(err, p.log.String())
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "/net-"); n != 1 {
		t.Errorf("%d connections:\n%s", n, text)
	}
}
