package main

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// manager takes the place of systemd.
type manager struct {
	conn    *net.UnixConn
	address string
	all     []string // messages so far
}

func newManager(t *testing.T) *manager {
	t.Helper()
	address := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", address)
	return &manager{conn: conn, address: address}
}

// receive returns the next message, or nothing after some time.
func (m *manager) receive(t *testing.T, patience time.Duration) string {
	t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	message := make([]byte, 4096)
	n, err := m.conn.Read(message)
	if err != nil {
		return ""
	}
	m.all = append(m.all, string(message[:n]))
	return string(message[:n])
}

// await waits for a message that contains all of some texts.
func (m *manager) await(t *testing.T, texts ...string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		message := m.receive(t, time.Until(end))
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(message, text) }) {
			return
		}
	}
	t.Fatalf("no %q among %q", texts, slices.Compact(m.all))
}

// collect receives all messages that were sent so far.
func (m *manager) collect(t *testing.T) {
	t.Helper()
	own, err := net.Dial("unixgram", m.address)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	const last = "the last message"
	if _, err := own.Write([]byte(last)); err != nil {
		t.Fatal(err)
	}
	m.await(t, last)
}

// TestSystemd: 12.80, 12.81. Ready means that the rules are active; the status names
// what is served and the first problem; SIGHUP reads the files again; a hanging loop
// lets the watchdog expire.
func TestSystemd(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_USEC", "200000")
	ns := netlab.TestNamespace(t)
	path := writeFile(t, service)
	p := start(t, ns, "nftproxy", "run", "-f", path)
	m.await(t, "READY=1")
	if !rendered(t, ns, "10.96.0.10:80") {
		t.Error("ready without rules")
	}
	m.await(t, "STATUS=1 Service, 2 endpoints")
	m.await(t, "WATCHDOG=1")

	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "SIGHUP has an effect", func() bool {
		return strings.Contains(p.log.String(), `reading the source again" reason="hangup signal received"`)
	})

	if err := os.WriteFile(path, []byte("kind: Service\nspec: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	m.await(t, "STATUS=1 Service, 2 endpoints; ", "Source: ", path)

	release := hang(t, p.Process)
	for range 10 { // what was on its way
		if m.receive(t, time.Second) == "" {
			break
		}
	}
	if late := m.receive(t, time.Second); late != "" {
		t.Errorf("%s from a process that hangs", late)
	}
	release()
	m.await(t, "WATCHDOG=1")

	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.await(t, "STOPPING=1")
	p.ends(t, 0)
}

// hang stops a process until release is called. No file can block the loop alone: what is not
// a regular one is not read.
func hang(t *testing.T, p *os.Process) (release func()) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
}

// TestSystemdNotReady: 12.80. With input that cannot be used, the process ends and was
// never ready; the status has the reason.
func TestSystemdNotReady(t *testing.T) {
	for name, args := range map[string][]string{
		"file":    {"-f", writeFile(t, "kind: Service\nspec: [")},
		"setting": {"-f", writeFile(t, service), "--scheduler=x"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t)
			p := start(t, netlab.TestNamespace(t), append([]string{"nftproxy", "run"}, args...)...)
			p.ends(t, cli.CodeNo)
			m.collect(t)
			all := strings.Join(m.all, "\n")
			if strings.Contains(all, "READY=1") || !strings.Contains(all, "STATUS=") || p.log.String() == "" {
				t.Errorf("messages %q, log %s", m.all, &p.log)
			}
		})
	}
}
