package neighbours

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
)

// virtual is the addresses that keepalived moves between nodes.
var virtual = map[model.Family]netip.Addr{
	model.IPv4: netip.MustParseAddr("192.0.2.250"), model.IPv6: netip.MustParseAddr("2001:db8::250")}

// ownPort is where a process of each node listens.
const ownPort = 9000

// The addresses belong to an interface of one node. The ports of the Service are
// served there, and all others are the node's.
func TestKeepalived(t *testing.T) {
	finds(t, finding{Group: "Load balancers", Neighbour: "keepalived", Version: keepalivedVersion(t), Verdict: works,
		Case: "virtual addresses of a LoadBalancer Service on a node's interface: served by the node that has them, before and after they move; " +
			"other ports stay the node's"})
	b := newMembers(t, 3)
	s := published{Service: b.createAt("web", virtual)}
	b.SetEndpoints(s.Service, b.pods()...)
	for _, f := range model.Families {
		s.targets = append(s.targets, targetsAt(virtual[f])...)
	}
	for i, m := range b.members {
		b.listenOn(m)
		m.balancer = b.startKeepalived(m, 100-i)
	}
	first := b.members[0]
	b.moved(s, first, true)
	b.balancedOver(s, b.pods()...)
	b.hostPorts(first)
	b.restarts(s)

	first.balancer.Stop(t)
	second := b.members[1]
	b.moved(s, second, true)
	b.balancedOver(s, b.pods()...)
	b.hostPorts(second)

	first.balancer = b.startKeepalived(first, 100)
	b.moved(s, first, true)
	b.balancedOver(s, b.pods()...)
	b.hostPorts(first)
}

func keepalivedVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("keepalived", "--version").CombinedOutput()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 2 {
		t.Fatalf("keepalived --version: %v\n%s", err, out)
	}
	return fields[1]
}

// createAt creates a Service whose load balancer has addresses.
func (b *balanced) createAt(name string, addresses map[model.Family]netip.Addr) testbed.Service {
	b.T.Helper()
	spec := testbed.DualStack(name)
	spec.Spec.Type = corev1.ServiceTypeLoadBalancer
	made := b.CreateService(spec)
	services := b.API.CoreV1().Services(testbed.Namespace)
	o, err := services.Get(b.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.T.Fatal(err)
	}
	for _, f := range model.Families {
		o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: addresses[f].String()})
	}
	if _, err := services.UpdateStatus(b.T.Context(), o, metav1.UpdateOptions{}); err != nil {
		b.T.Fatal(err)
	}
	return made
}

// startKeepalived starts it with a priority among the nodes.
func (b *balanced) startKeepalived(m *member, priority int) *testbed.Process {
	b.T.Helper()
	// An instance advertises addresses of one family, and may have others as well.
	config := fmt.Sprintf(`
global_defs {
	vrrp_version 3
}
vrrp_instance nodes {
	state BACKUP
	interface uplink
	virtual_router_id 51
	priority %d
	advert_int 0.2
	virtual_ipaddress {
		%s/32
	}
	virtual_ipaddress_excluded {
		%s/128
	}
}
`, priority, virtual[model.IPv4], virtual[model.IPv6])
	file := func(suffix string) string { return filepath.Join(b.Dir, m.Name+".keepalived."+suffix) }
	if err := os.WriteFile(file("conf"), []byte(config), 0o644); err != nil {
		b.T.Fatal(err)
	}
	return testbed.StartCommand(b.T, m.Host, "keepalived", exec.Command("keepalived", "--dont-fork", "--log-console", "--no-syslog",
		"-f", file("conf"), "-p", file("pid"), "-r", file("vrrp"), "-c", file("checkers")))
}

// listenOn starts a process of a node that answers with the name of the node at
// all its addresses.
func (b *balanced) listenOn(m *member) {
	b.T.Helper()
	l, err := m.Listen("tcp", fmt.Sprintf(":%d", ownPort))
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, m.Name)
			c.Close()
		}
	}()
}

// hostPorts checks ports of the virtual addresses that the Service does not have:
// one that the node listens on, and one that it refuses.
func (b *balanced) hostPorts(m *member) {
	b.T.Helper()
	for _, f := range model.Families {
		testbed.Eventually(b.T, func() error {
			c, err := b.outside.DialContext(b.T.Context(), "tcp", netip.AddrPortFrom(virtual[f], ownPort).String())
			if err != nil {
				return err
			}
			defer c.Close()
			if got, err := readAll(c); err != nil || got != m.Name {
				return fmt.Errorf("%s: got %q, %v, want %s", virtual[f], got, err, m.Name)
			}
			return testbed.WantRefused(b.outside, "udp", netip.AddrPortFrom(virtual[f], ownPort))
		})
	}
}

// readAll reads until the other side closes.
func readAll(c net.Conn) (string, error) {
	if err := c.SetDeadline(time.Now().Add(testbed.Strict)); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}
