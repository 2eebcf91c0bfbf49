package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// Clients that keep sending from one UDP socket follow the endpoints, and no
// other connection tracking entry is deleted (9.1, 9.3, 9.4, 9.7, 9.8).
func TestUDPSockets(t *testing.T) {
	c := newCluster(t, 3, testbed.WithoutOwnEndpoint)
	web := c.CreateService(testbed.WithNodePorts(testbed.DualStack("web")))
	other := c.CreateService(testbed.DualStack("other"))
	c.SetEndpoints(web, c.Pods[0])
	c.SetEndpoints(other, c.Pods[0])
	proxy := c.StartProxy(testbed.ProxyUser)
	c.Served(web, c.Pods[0])
	c.Served(other, c.Pods[0])
	sockets, bystanders := testbed.Only("udp", c.OpenFlows(web)), c.OpenFlows(other)
	for _, p := range c.Pods {
		c.forwarded(p, web.NodePorts["udp"])
	}

	c.terminating(web, c.Pods[0], c.Pods[1])
	c.Reached(web, c.Pods[1])
	testbed.GoOn(t, sockets, "its endpoint is terminating")

	before := c.udpEntries()
	c.moved(sockets, c.Pods[1], func() { c.SetEndpoints(web, c.Pods[1]) })
	c.onlyStaleGone(before, web, c.Pods[1])
	testbed.GoOn(t, bystanders, "endpoints of another service have changed")

	// A conntrack cleanup follows the first sync after a start.
	before = c.udpEntries()
	proxy.Stop(t)
	c.StartProxy(testbed.ProxyUser)
	c.moved(testbed.Only("udp", bystanders), c.Pods[2], func() { c.SetEndpoints(other, c.Pods[2]) })
	c.onlyStaleGone(before, other, c.Pods[2])
	testbed.GoOn(t, sockets, "the proxy was restarted")
}

// forwarded sends a datagram from outside to a pod, at the port number of a
// NodePort. The node forwards it, and no service is involved.
func (c *cluster) forwarded(p *netlab.Host, port uint16) {
	c.T.Helper()
	for _, f := range model.Families {
		to := netip.AddrPortFrom(p.Address(f), port)
		if answer, err := c.Client.Ask("udp", to, testbed.Strict); !errors.Is(err, syscall.ECONNREFUSED) {
			c.T.Fatalf("datagram to %s: got %v, %v, want ECONNREFUSED", to, answer, err)
		}
	}
}

// terminating makes one pod a terminating endpoint of a service and the other a
// ready one.
func (c *cluster) terminating(s testbed.Service, ending, ready *netlab.Host) {
	c.T.Helper()
	for _, f := range model.Families {
		slice := testbed.EndpointSlice(s, f, []*netlab.Host{ending, ready})
		slice.Endpoints[0].Conditions = discoveryv1.EndpointConditions{
			Ready: new(false), Serving: new(true), Terminating: new(true)}
		if _, err := c.API.DiscoveryV1().EndpointSlices(testbed.Namespace).Update(c.T.Context(), slice, metav1.UpdateOptions{}); err != nil {
			c.T.Fatal(err)
		}
	}
}

// lost is when a client takes an answer for lost and repeats its question: one is lost that is on its way from the
// endpoint while the entry is deleted. Entries of other clients that wait for an answer live for 30 s.
const lost = 3 * time.Second

// moved makes a change and waits until all flows are with a pod.
func (c *cluster) moved(flows []testbed.Flow, pod *netlab.Host, change func()) {
	c.T.Helper()
	start := time.Now()
	change()
	for i, f := range flows {
		f.Within(lost)
		testbed.Eventually(c.T, func() error {
			if answer, err := f.Ask(); err != nil || answer.Name != pod.Name {
				return fmt.Errorf("%s: got %v, %v, want an answer of %s", f.To, answer, err, pod.Name)
			}
			return nil
		})
		f.Within(0)
		flows[i].Peer = pod.Name
		c.T.Logf("the socket that sends to %s is with %s after %v", f.To, pod.Name, time.Since(start).Round(time.Millisecond))
	}
}

// udpEntries returns the connection tracking entries of the client's UDP flows.
func (c *cluster) udpEntries() []entry {
	c.T.Helper()
	var entries []entry
	err := c.Node.Do(func() error {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			list, err := netlinkio.List(func() ([]*netlink.ConntrackFlow, error) {
				return netlink.ConntrackTableList(netlink.ConntrackTable, family)
			})
			if err != nil {
				return err
			}
			for _, e := range list {
				from := addrPort(e.Forward.SrcIP, e.Forward.SrcPort)
				if e.Forward.Protocol == unix.IPPROTO_UDP && (from.Addr() == c.Client.IPv4 || from.Addr() == c.Client.IPv6) {
					entries = append(entries, entry{from, addrPort(e.Forward.DstIP, e.Forward.DstPort), addrPort(e.Reverse.SrcIP, e.Reverse.SrcPort)})
				}
			}
		}
		return nil
	})
	if err != nil {
		c.T.Fatalf("list connection tracking entries: %v", err)
	}
	return entries
}

// entry is a connection tracking entry of a UDP flow.
type entry struct{ from, dialled, answers netip.AddrPort }

func (e entry) String() string { return fmt.Sprintf("%s to %s at %s", e.from, e.dialled, e.answers) }

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}

// onlyStaleGone waits until the entries of a service that do not lead to its
// endpoint are deleted, and checks that all other earlier entries remain.
func (c *cluster) onlyStaleGone(before []entry, s testbed.Service, endpoint *netlab.Host) {
	c.T.Helper()
	stale := func(e entry) bool {
		return e.answers.Addr() != endpoint.IPv4 && e.answers.Addr() != endpoint.IPv6 &&
			slices.ContainsFunc(c.Targets(s), func(t testbed.Target) bool { return t.Network == "udp" && t.To == e.dialled })
	}
	var after []entry
	testbed.Eventually(c.T, func() error {
		after = c.udpEntries()
		if i := slices.IndexFunc(after, stale); i >= 0 {
			return fmt.Errorf("entry %s is still there", after[i])
		}
		return nil
	})
	kept := slices.DeleteFunc(slices.Clone(before), stale)
	for _, e := range kept {
		if !slices.Contains(after, e) {
			c.T.Errorf("entry %s is gone", e)
		}
	}
	c.T.Logf("%d of %d UDP entries were deleted", len(before)-len(kept), len(before))
	if len(kept) == 0 || len(kept) == len(before) {
		c.T.Errorf("the test proves nothing: there were %d entries, of which %d are to stay", len(before), len(kept))
	}
}
