package names

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// patience is how long an event may take on a busy machine.
const patience = time.Minute

// lab is a node with servers, and a DNS server beside it.
type lab struct {
	*netlab.Lab
	t      *testing.T
	dir    string
	dns    *netlab.Host
	server *exec.Cmd // dnsmasq; nil: it is down
	daemon *exec.Cmd
	log    netlab.LogBuffer
}

var (
	vip  = netip.MustParseAddrPort("203.0.113.10:80")
	vip6 = netip.MustParseAddrPort("[2001:db8:100::10]:80")
)

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Lab: netlab.TestLab(t, 4), t: t, dir: t.TempDir()}
	l.dns = l.Pods[3]
	if err := l.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			fmt.Fprintln(t.Output(), l.log.String())
		}
	})
	return l
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) write(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(l.path(name), []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// hosts has app.example.test resolve to these servers, in both families; none: there is no such
// name.
func (l *lab) hosts(servers ...int) {
	l.t.Helper()
	var text strings.Builder
	for _, n := range servers {
		fmt.Fprintf(&text, "%s app.example.test\n%s app.example.test\n", l.Pods[n].IPv4, l.Pods[n].IPv6)
	}
	fmt.Fprintf(&text, "%s one.example.test\n%s own.example.test\n%s own.example.test\n", l.Pods[0].IPv4, vip.Addr(), l.Pods[1].IPv4)
	l.write("hosts", text.String())
	if l.server != nil {
		if err := l.server.Process.Signal(syscall.SIGHUP); err != nil {
			l.t.Fatal(err)
		}
	}
}

// startDNS starts dnsmasq.
func (l *lab) startDNS() {
	l.t.Helper()
	cmd := exec.Command("dnsmasq", "--no-daemon", "--user=root", "--conf-file=/dev/null", "--pid-file=", "--no-resolv", "--no-hosts", "--bind-interfaces",
		"--listen-address="+l.dns.IPv4.String(), "--addn-hosts="+l.path("hosts"), "--local=/example.test/", "--local-ttl=1",
		"--srv-host=_http._tcp.example.test,one.example.test,8080,1,10")
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin")
	if found, err := exec.LookPath("/usr/sbin/dnsmasq"); err == nil {
		cmd.Path, cmd.Err = found, nil
	}
	cmd.Stderr = &l.log
	if err := l.dns.Start(cmd); err != nil {
		l.t.Fatal(err)
	}
	l.server = cmd
	l.t.Cleanup(l.stopDNS)
}

func (l *lab) stopDNS() {
	if l.server != nil {
		_ = l.server.Process.Kill()
		_ = l.server.Wait() // the error is the signal
		l.server = nil
	}
}

// start starts nftproxy.
func (l *lab) start() {
	l.t.Helper()
	cmd := exec.Command(binary, "run", "-f", l.path("conf.d"), "--isolate-files", "--drain-file", "", "--healthz-bind-address", "", "--dns-servers", l.dns.IPv4.String())
	cmd.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST=", "STATE_DIRECTORY="+l.dir, "RUNTIME_DIRECTORY=")
	cmd.Stdout, cmd.Stderr = &l.log, &l.log
	if err := l.Node.Start(cmd); err != nil {
		l.t.Fatal(err)
	}
	l.daemon = cmd
	l.t.Cleanup(l.stop)
}

// stop ends nftproxy, whose rules stay.
func (l *lab) stop() {
	if l.daemon == nil {
		return
	}
	_ = l.daemon.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = l.daemon.Wait()                          // the error is the signal
	l.daemon = nil
}

// balance writes a Balance.
func (l *lab) balance(name, text string) {
	l.t.Helper()
	if err := os.MkdirAll(l.path("conf.d"), 0o755); err != nil {
		l.t.Fatal(err)
	}
	l.write("conf.d/"+name+".yaml", "kind: Balance\nname: "+name+"\n"+text)
}

// answers returns the servers that answer, as often as there are servers, in order and each once;
// an error: a connection fails.
func (l *lab) answers(at netip.AddrPort) (string, error) {
	seen := make(map[string]bool)
	for range 2 * len(l.Pods) {
		a, err := l.Client.Ask("tcp", at, 5*time.Second)
		if err != nil {
			return "", err
		}
		seen[a.Name] = true
	}
	var out []string
	for _, p := range l.Pods {
		if seen[p.Name] {
			out = append(out, p.Name)
		}
	}
	return strings.Join(out, " "), nil
}

// await waits until connections reach these servers, and no others.
func (l *lab) await(at netip.AddrPort, want string) {
	l.t.Helper()
	netlab.Eventually(l.t, patience, func() error {
		got, err := l.answers(at)
		if err == nil && got != want {
			err = fmt.Errorf("connections to %s reach %q, want %q", at, got, want)
		}
		return err
	})
}

// run runs a command on the node.
func (l *lab) run(args ...string) string {
	l.t.Helper()
	cmd := exec.Command(binary, args...)
	var out netlab.LogBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := l.Node.Run(cmd); err != nil && !errors.As(err, new(*exec.ExitError)) {
		l.t.Fatal(err)
	}
	return out.String()
}

// shows waits until the output of a command has a text.
func (l *lab) shows(text string, args ...string) {
	l.t.Helper()
	netlab.Eventually(l.t, patience, func() error {
		if out := l.run(args...); !strings.Contains(out, text) {
			return fmt.Errorf("nftproxy %s does not show %q:\n%s", strings.Join(args, " "), text, out)
		}
		return nil
	})
}
