package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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

// TestFindNoDaemon says why a running daemon cannot be asked.
func TestFindNoDaemon(t *testing.T) {
	ns, other := namespaceWithLoopback(t), namespaceWithLoopback(t)
	file := writeFile(t, service)
	p := startCommand(t, other, asNftproxy(t, "run", "-f", file, "--healthz-bind-address", ""))
	eventually(t, "the daemon", func() bool { return ask(t, other, "status").code == 0 })
	r := ask(t, ns, "status")
	if want := "runs in another network namespace: ask it there, with \"nsenter -t "; r.code != exitError || !strings.Contains(r.stderr, want) {
		t.Errorf("another namespace: %d %s, want %q", r.code, r.stderr, want)
	}
	p.kill()

	startCommand(t, ns, asNftproxy(t, "run", "-f", file, "--healthz-bind-address", "", "--metrics-bind-address", ""))
	eventually(t, "tables", func() bool { return ask(t, ns, "status").code == 0 })
	if r := ask(t, ns, "status"); !strings.Contains(r.stdout, "the configuration has no metrics server") || !strings.Contains(r.stdout, "from the kernel's tables") {
		t.Errorf("no server: %s", r.stdout)
	}
}

// TestDaemonOfConfig asks at the address of a configuration file.
func TestDaemonOfConfig(t *testing.T) {
	ns := namespaceWithLoopback(t)
	path := filepath.Join(t.TempDir(), "config.conf")
	if r := execute("", "run", "--write-config-to", path, "--metrics-bind-address", "127.0.0.1:7005"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	if r := ask(t, ns, "status", "--config", path); r.code != exitError || !strings.Contains(r.stderr, "no daemon answers at 127.0.0.1:7005 ") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
	if r := ask(t, ns, "status", "--config", "/nowhere"); r.code != exitError || !strings.Contains(r.stderr, "/nowhere") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
	if r := ask(t, ns, "status", "--metrics-bind-address", "127.0.0.2"); r.code != exitError || !strings.Contains(r.stderr, "no daemon answers at 127.0.0.2:10249 ") {
		t.Errorf("%d %s", r.code, r.stderr)
	}
}
