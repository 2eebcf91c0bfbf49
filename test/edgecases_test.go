package test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// edgeCase is unusual but valid objects, including some that an API server no
// longer admits, and a check of the result.
type edgeCase struct {
	services []*corev1.Service
	slices   []*discoveryv1.EndpointSlice
	check    func(t *testing.T, c *cluster, rules *nft.Ruleset)
}

// TestEdgeCases: the kernel accepts the rules of every known edge case. Each of
// these objects is loaded, serves, and lists in a form that nft loads again,
// while another Service serves beside it.
func TestEdgeCases(t *testing.T) {
	t.Parallel()
	for name, objects := range map[string]func(*cluster) edgeCase{
		"names as long as they may be":     longNames,
		"1,000 ports":                      manyPorts,
		"10,000 endpoints in 100 slices":   manyEndpoints,
		"overlapping source ranges":        overlappingRanges,
		"source ranges of length 0":        openRanges,
		"the same endpoint three times":    sameEndpoint,
		"the same node port everywhere":    sameNodePort,
		"the same address again and again": sameAddress,
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			a := objects(c)
			beside := kubeService("beside", 99, kubePort("http", 80, 0))
			a.services = append(a.services, beside)
			a.slices = append(a.slices, kubeSlices(beside, c.Pods[1])...)
			rules := c.load(a)
			a.check(t, c, rules)
			for _, f := range model.Families {
				address := netip.AddrPortFrom(netip.MustParseAddr(map[model.Family]string{model.IPv4: "10.96.0.99", model.IPv6: "fd00:10:96::99"}[f]), 80)
				if got := ask(t, c.Client, "tcp", address).Name; got != c.Pods[1].Name {
					t.Errorf("the Service beside it: %s answers", got)
				}
			}
			c.listsAgain()
		})
	}
}

// load converts objects as from an API server and applies them on the node. It
// returns the resulting rules of the kernel.
func (c *cluster) load(a edgeCase) *nft.Ruleset {
	c.t.Helper()
	s := &model.Snapshot{Nodes: []*model.Node{{Name: nodeName, Addresses: []netip.Addr{c.Node.IPv4, c.Node.IPv6}}}}
	for _, o := range a.services {
		if service, _ := convert.Service(o, ""); service != nil {
			s.Services = append(s.Services, service)
		}
	}
	for _, o := range a.slices {
		if slice, _ := convert.EndpointSlice(o); slice != nil {
			s.Slices = append(s.Slices, slice)
		}
	}
	rules := render.Render(model.Resolve(s, model.Config{NodeName: nodeName, ClusterCIDRs: []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}}))
	var current *nft.Ruleset
	if err := c.Node.Do(func() error {
		conn, err := kernel.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		applier := apply.New(conn, slog.New(slog.DiscardHandler))
		if _, err := applier.Apply(nft.FromNothing(rules)); err != nil {
			return err
		}
		if current, _, err = conn.Read(); err != nil {
			return err
		}
		plan, err := applier.Apply(nft.FromNothing(rules))
		if err == nil && !plan.Empty() {
			err = fmt.Errorf("the second apply is not empty: %s", plan.Summary())
		}
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
	return current
}

// listsAgain loads nft's listing of the node into another namespace, where it
// must list the same.
func (c *cluster) listsAgain() {
	c.t.Helper()
	elsewhere := netlab.TestNamespace(c.t)
	listing := netlab.Listing(c.nft, "list", "ruleset")
	load := exec.Command("nft", "-f", "-")
	load.Stdin = strings.NewReader(listing)
	var problem strings.Builder
	load.Stderr = &problem
	if err := elsewhere.Run(load); err != nil {
		if strings.Contains(problem.String(), "Message too long") {
			netlab.SkipInUserNamespace(c.t, "a netlink message of megabytes")
		}
		c.t.Fatalf("nft does not load its listing: %v\n%s", err, problem.String())
	}
	again := netlab.Listing(func(args ...string) string { return elsewhere.NFT(c.t, args...) }, "list", "ruleset")
	if again != listing {
		c.t.Errorf("loaded again it lists differently:\n%s", cmp.Diff(listing, again))
	}
}

// kubeService returns a dual stack Service of type LoadBalancer.
func kubeService(name string, n int, ports ...corev1.ServicePort) *corev1.Service {
	v4, v6 := fmt.Sprintf("10.96.0.%d", n), fmt.Sprintf("fd00:10:96::%d", n)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.Unix(int64(n), 0)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: v4, ClusterIPs: []string{v4, v6},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, Ports: ports,
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
			{IP: fmt.Sprintf("203.0.113.%d", n)}, {IP: fmt.Sprintf("2001:db8:2::%d", n)}}}},
	}
}

func kubePort(name string, port, nodePort int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: port, NodePort: nodePort}
}

// kubeSlices returns slices of both families, each with at most 100 ports, in
// which the hosts answer on every port of the Service.
func kubeSlices(s *corev1.Service, hosts ...*netlab.Host) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, f := range model.Families {
		for ports := range slices.Chunk(s.Spec.Ports, 100) {
			slice := kubeSlice(s, f, len(out))
			for i := range ports {
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &ports[i].Name, Protocol: &ports[i].Protocol, Port: ptr(int32(echoPort))})
			}
			for _, h := range hosts {
				slice.Endpoints = append(slice.Endpoints, kubeEndpoint(h.Address(f)))
			}
			out = append(out, slice)
		}
	}
	return out
}

func kubeSlice(s *corev1.Service, f model.Family, n int) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprintf("%s-%d", s.Name, n),
			Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
		AddressType: discoveryv1.AddressType(f.String()),
	}
}

func kubeEndpoint(a netip.Addr) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{a.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)}, NodeName: ptr(nodeName)}
}

func ptr[T any](v T) *T { return &v }

// answeredBy checks that one host answers at each of some addresses.
func (c *cluster) answeredBy(t *testing.T, host *netlab.Host, addresses ...string) {
	t.Helper()
	for _, a := range addresses {
		if got := ask(t, c.Client, "tcp", netip.MustParseAddrPort(a)).Name; got != host.Name {
			t.Errorf("%s: %s answers, want %s", a, got, host.Name)
		}
	}
}

// slotsOf counts the slots of an IPv4 frontend.
func slotsOf(rules *nft.Ruleset, frontend string) (n int) {
	to := netip.MustParseAddrPort(frontend)
	for _, e := range rules.Table(model.IPv4).Set(nft.EndpointsMap).Elements {
		if e.Key.Address == to.Addr() && e.Key.Port == to.Port() {
			n++
		}
	}
	return n
}

// longNames would give comments of more than 128 bytes, which nft does not
// load.
func longNames(c *cluster) edgeCase {
	s := kubeService(strings.Repeat("s", 63), 1, kubePort("p"+strings.Repeat("2", 14), 80, 30001), kubePort("q"+strings.Repeat("2", 14), 81, 30002))
	s.Namespace = strings.Repeat("n", 63)
	s.Spec.ExternalIPs = []string{"198.51.100.1"}
	s.Spec.SessionAffinity = corev1.ServiceAffinityNone
	all := kubeSlices(s, c.Pods[0])
	for i, slice := range all {
		slice.Name = strings.Repeat("e", 250) + fmt.Sprintf("%03d", i)
		slice.Endpoints[0].NodeName = ptr(strings.Repeat("w", 63) + strings.Repeat("."+strings.Repeat("w", 62), 3))
		slice.Endpoints[0].Zone = ptr(strings.Repeat("z", 63))
	}
	return edgeCase{[]*corev1.Service{s}, all, func(t *testing.T, c *cluster, rules *nft.Ruleset) {
		c.answeredBy(t, c.Pods[0], "10.96.0.1:80", "10.96.0.1:81", "198.51.100.1:80", "203.0.113.1:81", "192.0.2.1:30001", "192.0.2.1:30002")
		for _, e := range rules.Table(model.IPv4).Set(nft.ServicesMap).Elements {
			if len(e.Comment) > 128 || e.Key.Address.String() != "10.96.0.99" && e.Key.Address.String() != "203.0.113.99" && len(e.Comment) != 128 {
				t.Errorf("comment of %d bytes: %s", len(e.Comment), e.Comment)
			}
		}
	}}
}

func manyPorts(c *cluster) edgeCase {
	var ports []corev1.ServicePort
	for i := range int32(1000) {
		ports = append(ports, kubePort(fmt.Sprintf("p-%d", i), 1000+i, 31000+i))
	}
	s := kubeService("ports", 1, ports...)
	return edgeCase{[]*corev1.Service{s}, kubeSlices(s, c.Pods[0]), func(t *testing.T, c *cluster, _ *nft.Ruleset) {
		c.answeredBy(t, c.Pods[0], "10.96.0.1:1000", "10.96.0.1:1500", "10.96.0.1:1999", "203.0.113.1:1999", "192.0.2.1:31000", "192.0.2.1:31999")
		refused(t, []*netlab.Host{c.Client}, "tcp", netip.MustParseAddrPort("10.96.0.1:2000"))
	}}
}

// manyEndpoints is one Service with more endpoints than a node can have pods:
// the pod of the laboratory, and neighbouring addresses without a host.
func manyEndpoints(c *cluster) edgeCase {
	s := kubeService("endpoints", 1, kubePort("http", 80, 30001))
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	var all []*discoveryv1.EndpointSlice
	for i := range 100 {
		slice := kubeSlice(s, model.IPv4, i)
		slice.Ports = []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(echoPort))}}
		for j := range 100 {
			e := kubeEndpoint(netip.AddrFrom4([4]byte{10, 129, byte(i), byte(j)}))
			e.NodeName = ptr("elsewhere")
			slice.Endpoints = append(slice.Endpoints, e)
		}
		all = append(all, slice)
	}
	all[99].Endpoints[99] = kubeEndpoint(c.Pods[0].IPv4)
	return edgeCase{[]*corev1.Service{s}, all, func(t *testing.T, c *cluster, rules *nft.Ruleset) {
		// Clients from outside get the endpoints of this node.
		c.answeredBy(t, c.Pods[0], "192.0.2.1:30001", "203.0.113.1:80")
		for _, f := range []string{"10.96.0.1:80", "192.0.2.1:30001"} {
			if n := slotsOf(rules, f); n != 10_000 {
				t.Errorf("%s has %d slots, want 10,000", f, n)
			}
		}
	}}
}

func overlappingRanges(c *cluster) edgeCase {
	open := kubeService("open", 1, kubePort("http", 80, 0))
	open.Spec.LoadBalancerSourceRanges = []string{"10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8", "10.1.2.3/32", "192.0.2.0/24", "192.0.2.2/32", "192.0.2.2/31", "2001:db8::/32", "2001:db8::2/128"}
	closed := kubeService("closed", 2, kubePort("http", 80, 0))
	closed.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8", "10.1.0.0/16", "10.0.0.1/8", "255.255.255.255/32", "0.0.0.0/2"}
	return edgeCase{[]*corev1.Service{open, closed}, slices.Concat(kubeSlices(open, c.Pods[0]), kubeSlices(closed, c.Pods[0])),
		func(t *testing.T, c *cluster, _ *nft.Ruleset) {
			c.answeredBy(t, c.Pods[0], "203.0.113.1:80", "10.96.0.2:80")
			ask(t, c.Client, "tcp", netip.MustParseAddrPort("[2001:db8:2::1]:80"))
			silent(t, []*netlab.Host{c.Client}, "tcp", netip.MustParseAddrPort("203.0.113.2:80"))
		}}
}

func openRanges(c *cluster) edgeCase {
	s := kubeService("open", 1, kubePort("http", 80, 0))
	s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8", "0.0.0.0/0", "::/0", "0.0.0.0/0", "fd00::/8"}
	return edgeCase{[]*corev1.Service{s}, kubeSlices(s, c.Pods[0]), func(t *testing.T, c *cluster, _ *nft.Ruleset) {
		c.answeredBy(t, c.Pods[0], "203.0.113.1:80")
		ask(t, c.Client, "tcp", netip.MustParseAddrPort("[2001:db8:2::1]:80"))
	}}
}

// sameEndpoint is twice in one slice and once more in another one.
func sameEndpoint(c *cluster) edgeCase {
	s := kubeService("twice", 1, kubePort("http", 80, 0))
	all := slices.Concat(kubeSlices(s, c.Pods[0], c.Pods[0]), kubeSlices(s, c.Pods[0]))
	for i, slice := range all {
		slice.Name = fmt.Sprintf("twice-%d", i)
	}
	return edgeCase{[]*corev1.Service{s}, all, func(t *testing.T, c *cluster, rules *nft.Ruleset) {
		c.answeredBy(t, c.Pods[0], "10.96.0.1:80", "10.96.0.1:80", "203.0.113.1:80")
		if n := slotsOf(rules, "10.96.0.1:80"); n != 1 {
			t.Errorf("%d slots for one endpoint", n)
		}
	}}
}

// sameNodePort: two ports of one Service and another Service ask for it.
func sameNodePort(c *cluster) edgeCase {
	older := kubeService("older", 1, kubePort("http", 80, 30001), kubePort("more", 81, 30001))
	younger := kubeService("younger", 2, kubePort("http", 80, 30001))
	return edgeCase{[]*corev1.Service{younger, older}, slices.Concat(kubeSlices(older, c.Pods[0]), kubeSlices(younger, c.Pods[1])),
		func(t *testing.T, c *cluster, rules *nft.Ruleset) {
			c.answeredBy(t, c.Pods[0], "192.0.2.1:30001", "10.96.0.1:80", "10.96.0.1:81")
			c.answeredBy(t, c.Pods[1], "10.96.0.2:80")
			if n := slotsOf(rules, "192.0.2.1:30001"); n != 1 {
				t.Errorf("%d slots for one node port", n)
			}
		}}
}

// sameAddress: external IPs that come twice, or are the ClusterIP, and Services
// with one ClusterIP.
func sameAddress(c *cluster) edgeCase {
	first := kubeService("first", 1, kubePort("http", 80, 0))
	first.Spec.ExternalIPs = []string{"198.51.100.1", "198.51.100.1", "203.0.113.1", "10.96.0.1", "2001:db8:1::1", "2001:DB8:1::1"}
	first.Status.LoadBalancer.Ingress = append(first.Status.LoadBalancer.Ingress, first.Status.LoadBalancer.Ingress...)
	second := kubeService("second", 1, kubePort("http", 80, 0), kubePort("more", 81, 0))
	second.CreationTimestamp = metav1.NewTime(time.Unix(2, 0))
	return edgeCase{[]*corev1.Service{second, first}, slices.Concat(kubeSlices(first, c.Pods[0]), kubeSlices(second, c.Pods[1])),
		func(t *testing.T, c *cluster, rules *nft.Ruleset) {
			c.answeredBy(t, c.Pods[0], "10.96.0.1:80", "198.51.100.1:80", "203.0.113.1:80")
			c.answeredBy(t, c.Pods[1], "10.96.0.1:81", "203.0.113.1:81")
			if n := slotsOf(rules, "198.51.100.1:80"); n != 1 {
				t.Errorf("%d slots for one address", n)
			}
		}}
}
