package neighbours

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// metallbFinding returns that a case works with MetalLB.
func metallbFinding(t *testing.T, tried string) finding {
	return finding{Group: "Load balancers", Neighbour: "MetalLB", Version: testbed.ToolModule(t, "metallb", metallbModule, "Version"),
		Case: tried, Verdict: works}
}

// Any node that the address is announced by forwards to all endpoints, and the
// address moves when that node goes.
func TestMetalLBCluster(t *testing.T) {
	finds(t, metallbFinding(t, "layer 2, external traffic policy Cluster: address reached by ARP and NDP, restarts of nftproxy under load "+
		"(0 requests lost), `loadBalancerSourceRanges`, loss of the announcing node"))
	b := newBalanced(t, 3, onLink)
	s := b.createBalanced(testbed.DualStack("web"), corev1.ServiceExternalTrafficPolicyCluster)
	b.SetEndpoints(s.Service, b.pods()...)
	b.balancedOver(s, b.pods()...)
	b.restarts(s)
	b.sourceRanges(s)
	b.otherPorts(s)

	// The speaker restarts, then its node goes.
	gone := b.announcer(s)
	gone.speaker.Kill()
	b.moved(s, gone, false)
	b.startSpeaker(gone)
	b.joined()
	b.moved(s, gone, true)
	i := slices.Index(b.members, gone)
	gone.speaker.Kill()
	b.cut(gone)
	b.members = slices.Delete(b.members, i, i+1)
	b.SetEndpoints(s.Service, b.pods()...)
	b.balancedOver(s, b.pods()...)
	b.moved(s, gone, false)
}

// The address follows the local endpoints, and pods see the client's address.
func TestMetalLBLocal(t *testing.T) {
	finds(t, metallbFinding(t, "layer 2, external traffic policy Local: source address kept, health check node port on each node, "+
		"address moves to a node with an endpoint"))
	b := newBalanced(t, 3, onLink)
	s := b.createBalanced(testbed.DualStack("web"), corev1.ServiceExternalTrafficPolicyLocal)
	pods := b.pods()
	for _, endpoints := range [][]*netlab.Host{pods[:2], nil, pods[2:], {pods[0], pods[2]}} {
		b.SetEndpoints(s.Service, endpoints...)
		b.healthChecks(s, endpoints)
		if len(endpoints) > 0 {
			b.localTo(s, endpoints)
		}
	}
	// The node that has the address loses its endpoint.
	was := b.announcer(s)
	left := slices.DeleteFunc([]*netlab.Host{pods[0], pods[2]}, func(p *netlab.Host) bool { return p == was.pod })
	b.SetEndpoints(s.Service, left...)
	b.localTo(s, left)
	b.restarts(s)
}

// published is a Service with addresses of MetalLB's pool.
type published struct {
	testbed.Service
	targets     []testbed.Target
	healthCheck int32
}

// createBalanced creates a Service and waits for its addresses.
func (b *balanced) createBalanced(spec *corev1.Service, policy corev1.ServiceExternalTrafficPolicy) published {
	b.T.Helper()
	spec.Spec.Type, spec.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, policy
	s := published{Service: b.CreateService(spec)}
	testbed.Eventually(b.T, func() error {
		made, err := b.API.CoreV1().Services(testbed.Namespace).Get(b.T.Context(), s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n := len(made.Status.LoadBalancer.Ingress); n != len(s.ClusterIPs) {
			return fmt.Errorf("%s has %d load balancer addresses", s.Name, n)
		}
		s.healthCheck = made.Spec.HealthCheckNodePort
		for _, i := range made.Status.LoadBalancer.Ingress {
			s.targets = append(s.targets, targetsAt(netip.MustParseAddr(i.IP))...)
		}
		return nil
	})
	return s
}

// targetsAt returns where a Service is dialled at an address.
func targetsAt(a netip.Addr) (all []testbed.Target) {
	for _, network := range []string{"tcp", "udp"} {
		all = append(all, testbed.Target{Network: network, Family: model.FamilyOf(a), To: netip.AddrPortFrom(a, testbed.ServicePort)})
	}
	return all
}

func (b *balanced) pods() (all []*netlab.Host) {
	for _, m := range b.members {
		all = append(all, m.pod)
	}
	return all
}

// balancedOver waits until the client reaches all of these pods.
func (b *balanced) balancedOver(s published, pods ...*netlab.Host) {
	b.T.Helper()
	for _, to := range s.targets {
		testbed.Eventually(b.T, func() error { return testbed.OnlyTo(b.outside, to, pods) })
	}
}

// localTo waits until the client reaches the pod of the one node that announces
// the address, which is one of these, and sees the client's address.
func (b *balanced) localTo(s published, pods []*netlab.Host) {
	b.T.Helper()
	for _, to := range s.targets {
		testbed.Eventually(b.T, func() error {
			answer, err := b.outside.Ask(to.Network, to.To, testbed.Silence)
			if err != nil {
				return fmt.Errorf("%s: %w", to, err)
			}
			if answer.Client != b.outside.Address(to.Family) {
				b.T.Fatalf("%s: the endpoint sees %s, want the client's address", to, answer.Client)
			}
			at := b.announcer(s)
			if answer.Name != at.pod.Name || !slices.Contains(pods, at.pod) {
				return fmt.Errorf("%s: answer of %s, announced by %s", to, answer.Name, at.Name)
			}
			return nil
		})
	}
}

// announcer returns the node whose hardware address the client has for the
// addresses of a Service, once it is one for both families.
func (b *balanced) announcer(s published) (at *member) {
	b.T.Helper()
	testbed.Eventually(b.T, func() error {
		var found []*member
		for _, to := range s.targets {
			_, _ = b.outside.Ask(to.Network, to.To, testbed.Silence) // so that the kernel looks for the address
			mac, err := neighbourOf(b.outside, to.To.Addr())
			if err != nil {
				return err
			}
			found = append(found, b.withHardware(mac))
		}
		if at = found[0]; at == nil || len(slices.Compact(found)) > 1 {
			return fmt.Errorf("addresses of %s are announced by %v", s.Name, found)
		}
		return nil
	})
	return at
}

// moved waits until the addresses of a Service have moved to a node, or away from
// it, and are served there.
func (b *balanced) moved(s published, node *member, to bool) {
	b.T.Helper()
	testbed.Eventually(b.T, func() error {
		if now := b.announcer(s); (now == node) != to {
			return fmt.Errorf("%s is announced by %s", s.Name, now.Name)
		}
		return nil
	})
	for _, to := range s.targets {
		testbed.Eventually(b.T, func() error {
			_, err := b.outside.Ask(to.Network, to.To, testbed.Silence)
			return err
		})
	}
}

// neighbourOf returns the hardware address that a host has for an address.
func neighbourOf(h *netlab.Host, a netip.Addr) (mac net.HardwareAddr, err error) {
	err = h.Do(func() error {
		all, err := netlinkio.List(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, netlink.FAMILY_ALL) })
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(n netlink.Neigh) bool { return n.IP.Equal(a.AsSlice()) && n.HardwareAddr != nil })
		if i < 0 {
			return fmt.Errorf("%s has no neighbour %s", h.Name, a)
		}
		mac = all[i].HardwareAddr
		return nil
	})
	return mac, err
}

func (b *balanced) withHardware(mac net.HardwareAddr) *member {
	for _, m := range b.members {
		var link netlink.Link
		err := m.Do(func() (err error) {
			link, err = netlink.LinkByName("uplink")
			return err
		})
		if err == nil && bytes.Equal(link.Attrs().HardwareAddr, mac) {
			return m
		}
	}
	return nil
}

// cut takes a node off the link.
func (b *balanced) cut(m *member) {
	b.T.Helper()
	err := b.sw.Do(func() error {
		port, err := netlink.LinkByName(m.Name)
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(port)
	})
	if err != nil {
		b.T.Fatal(err)
	}
}

// restarts restarts nftproxy on every node while the client keeps asking.
func (b *balanced) restarts(s published) {
	b.T.Helper()
	load := testbed.StartLoadOn(b.T, s.targets, func(int) *netlab.Host { return b.outside })
	for _, m := range b.members {
		m.proxy.Stop(b.T)
		b.startProxyOn(m)
		b.HasSynced(m.Host, m.proxy)
	}
	load.Check()
}

// sourceRanges excludes the client, and admits it again.
func (b *balanced) sourceRanges(s published) {
	b.T.Helper()
	set := func(ranges string) {
		b.Kubectl("patch", "service", s.Name, "--type=merge", "-p", `{"spec": {"loadBalancerSourceRanges": `+ranges+`}}`)
	}
	set(`["198.51.100.0/24", "2001:db8:51::/64"]`)
	for _, to := range s.targets {
		testbed.Eventually(b.T, func() error { return testbed.WantSilence(b.outside, to.Network, to.To) })
	}
	set(fmt.Sprintf(`["%s/32", "%s/128"]`, b.outside.IPv4, b.outside.IPv6))
	b.balancedOver(s, b.pods()...)
	set("null")
}

// otherPorts asks at a port that the Service does not have. The announcing node
// looks for the address on the link, where no other node has it.
func (b *balanced) otherPorts(s published) {
	b.T.Helper()
	for _, to := range s.targets {
		other := netip.AddrPortFrom(to.To.Addr(), to.To.Port()+1)
		if answer, err := b.outside.Ask(to.Network, other, testbed.Silence); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
			b.T.Errorf("%s %s: got %v, %v, want no answer", to.Network, other, answer, err)
		}
	}
}

// healthChecks waits until a health check node port is answered right on each
// node, of which those of the endpoints have one.
func (b *balanced) healthChecks(s published, endpoints []*netlab.Host) {
	b.T.Helper()
	for _, m := range b.members {
		want := http.StatusServiceUnavailable
		if slices.Contains(endpoints, m.pod) {
			want = http.StatusOK
		}
		for _, to := range s.targets {
			url := "http://" + netip.AddrPortFrom(m.Address(to.Family), uint16(s.healthCheck)).String()
			testbed.Eventually(b.T, func() error { return wantStatus(b.outside, url, want) })
		}
	}
}

// wantStatus asks for a page over a new connection.
func wantStatus(from *netlab.Host, url string, want int) error {
	client := http.Client{Timeout: testbed.Strict, Transport: &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	if r.StatusCode != want {
		return fmt.Errorf("%s: got %s, want %d", url, r.Status, want)
	}
	return nil
}
