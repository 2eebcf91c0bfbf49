package names

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/test/program"
)

// lab is a machine with servers, and a DNS server beside it.
type lab struct {
	*program.Machine
	dns    *netlab.Host
	server *exec.Cmd // dnsmasq; nil: it is down
}

var (
	vip  = netip.MustParseAddrPort("203.0.113.10:80")
	vip6 = netip.MustParseAddrPort("[2001:db8:100::10]:80")
)

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Machine: program.NewMachine(t, binary, 4)}
	l.dns = l.Pods[3]
	if err := l.EchoOnPods(8080); err != nil {
		t.Fatal(err)
	}
	return l
}

// hosts has app.example.test resolve to these servers, in both families; none: there is no such
// name.
func (l *lab) hosts(servers ...int) {
	l.T.Helper()
	var text strings.Builder
	for _, n := range servers {
		fmt.Fprintf(&text, "%s app.example.test\n%s app.example.test\n", l.Pods[n].IPv4, l.Pods[n].IPv6)
	}
	fmt.Fprintf(&text, "%s one.example.test\n%s own.example.test\n%s own.example.test\n", l.Pods[0].IPv4, vip.Addr(), l.Pods[1].IPv4)
	l.Write("hosts", text.String())
	if l.server != nil {
		if err := l.server.Process.Signal(syscall.SIGHUP); err != nil {
			l.T.Fatal(err)
		}
	}
}

// startDNS starts dnsmasq.
func (l *lab) startDNS() {
	l.T.Helper()
	l.server = l.Serve(l.dns, "dnsmasq", "--no-daemon", "--user=root", "--conf-file=/dev/null", "--pid-file=", "--no-resolv", "--no-hosts", "--bind-interfaces",
		"--listen-address="+l.dns.IPv4.String(), "--addn-hosts="+l.Path("hosts"), "--local=/example.test/", "--local-ttl=1",
		"--srv-host=_http._tcp.example.test,one.example.test,8080,1,10")
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
	l.T.Helper()
	l.Start("--dns-servers", l.dns.IPv4.String())
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
	l.T.Helper()
	netlab.Eventually(l.T, program.Patience, func() error {
		got, err := l.answers(at)
		if err == nil && got != want {
			err = fmt.Errorf("connections to %s reach %q, want %q", at, got, want)
		}
		return err
	})
}
