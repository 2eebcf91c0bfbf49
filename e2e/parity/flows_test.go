package parity

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// cluster has two pods on the node, two on others, and Services of all kinds.
type cluster struct {
	*testbed.Cluster
	services []service
	touched  int
}

// service is a Service with its endpoints.
type service struct {
	what string
	testbed.Service
	pods      []*netlab.Host
	addresses []string // external ones
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{Cluster: testbed.NewCluster(t, 2)}
	if err := c.AddRemotePods(2); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Remote {
		c.StartEcho(p)
	}
	everywhere := append(slices.Clone(c.Pods), c.Remote...)
	c.create("policies Cluster", 1, everywhere, func(*corev1.ServiceSpec) {})
	c.create("external policy Local", 2, everywhere, func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	c.create("external policy Local, endpoints elsewhere", 3, c.Remote, func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	c.create("internal policy Local", 4, everywhere, func(s *corev1.ServiceSpec) { s.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) })
	c.create("internal policy Local, endpoints elsewhere", 5, c.Remote, func(s *corev1.ServiceSpec) { s.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) })
	c.create("source ranges without any client", 6, everywhere, func(s *corev1.ServiceSpec) {
		s.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "2001:db8:77::/64"}
	})
	c.create("no endpoints", 7, nil, func(*corev1.ServiceSpec) {})
	c.create("session affinity", 8, c.Pods[:1], func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP })
	return c
}

// create makes a Service of type LoadBalancer with an external IP and an address of the load
// balancer in each family.
func (c *cluster) create(what string, n int, pods []*netlab.Host, change func(*corev1.ServiceSpec)) {
	c.T.Helper()
	s := testbed.DualStack(fmt.Sprintf("service-%d", n))
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.ExternalIPs = []string{fmt.Sprintf("203.0.113.%d", n), fmt.Sprintf("2001:db8:1::%d", n)}
	change(&s.Spec)
	made := c.CreateService(s)
	ctx, api := c.T.Context(), c.API.CoreV1().Services(testbed.Namespace)
	object, err := api.Get(ctx, made.Name, metav1.GetOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	balancers := []string{fmt.Sprintf("203.0.113.%d", 100+n), fmt.Sprintf("2001:db8:2::%d", n)}
	for _, a := range balancers {
		object.Status.LoadBalancer.Ingress = append(object.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a, IPMode: new(corev1.LoadBalancerIPModeVIP)})
	}
	if _, err := api.UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
		c.T.Fatal(err)
	}
	c.SetEndpoints(made, pods...)
	c.services = append(c.services, service{what, made, pods, append(slices.Clone(s.Spec.ExternalIPs), balancers...)})
}

// touch changes the endpoints of a Service, with the time of the change.
func (c *cluster) touch() {
	c.touched++
	pods := c.services[0].pods[:1+c.touched%2]
	for _, f := range model.Families {
		slice := testbed.EndpointSlice(c.services[0].Service, f, pods)
		slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Format(time.RFC3339Nano)}
		if _, err := c.API.DiscoveryV1().EndpointSlices(testbed.Namespace).Update(c.T.Context(), slice, metav1.UpdateOptions{}); err != nil {
			c.T.Fatal(err)
		}
	}
}

// flow is what clients of a kind get from frontends of a kind, in both families and with
// both protocols.
type flow struct{ what, result string }

// place is a kind of frontend.
type place struct {
	name string
	at   func(s service, network string, f model.Family) netip.AddrPort
}

func (c *cluster) places() []place {
	external := func(from int) func(service, string, model.Family) netip.AddrPort {
		return func(s service, _ string, f model.Family) netip.AddrPort {
			return netip.AddrPortFrom(netip.MustParseAddr(s.addresses[from+slices.Index(model.Families[:], f)]), testbed.ServicePort)
		}
	}
	return []place{
		{"ClusterIP", func(s service, _ string, f model.Family) netip.AddrPort { return s.Frontend(f) }},
		{"NodePort", func(s service, network string, f model.Family) netip.AddrPort {
			return netip.AddrPortFrom(c.Node.Address(f), s.NodePorts[network])
		}},
		{"external IP", external(0)},
		{"load balancer IP", external(2)},
		{"NodePort on localhost", func(s service, network string, f model.Family) netip.AddrPort {
			loopback := map[model.Family]string{model.IPv4: "127.0.0.1", model.IPv6: "::1"}[f]
			return netip.AddrPortFrom(netip.MustParseAddr(loopback), s.NodePorts[network])
		}},
		{"another port of the ClusterIP", func(s service, _ string, f model.Family) netip.AddrPort {
			return netip.AddrPortFrom(s.Frontend(f).Addr(), 81)
		}},
	}
}

// flows asks every frontend from every kind of client.
func (c *cluster) flows() (all []flow) {
	c.T.Helper()
	testbed.Eventually(c.T, func() error { // the rules of all Services are there
		last := c.services[len(c.services)-1]
		return testbed.OnlyTo(c.Client, testbed.Target{Network: "tcp", Family: model.IPv6, To: c.places()[3].at(last, "tcp", model.IPv6)}, last.pods)
	})
	clients := []struct {
		name string
		*netlab.Host
	}{{"from outside", c.Client}, {"from the node", c.Node}, {"from a pod of the node", c.Pods[0]}}
	for _, s := range c.services {
		for _, p := range c.places() {
			for _, client := range clients {
				if p.name == "NodePort on localhost" && client.Host != c.Node {
					continue
				}
				all = append(all, c.askAll(s, p, client.Host, client.name)...)
			}
		}
	}
	return all
}

// askAll asks a frontend with both protocols in both families, at the same time.
func (c *cluster) askAll(s service, p place, client *netlab.Host, name string) (all []flow) {
	results := map[string]*[2]string{"tcp": {}, "udp": {}}
	var group sync.WaitGroup
	for network, into := range results {
		for i, f := range model.Families {
			group.Go(func() { into[i] = ask(client, network, p.at(s, network, f), len(s.pods)) })
		}
	}
	group.Wait()
	for _, network := range []string{"tcp", "udp"} {
		r := results[network]
		slices.Sort(r[:])
		all = append(all, flow{fmt.Sprintf("%s, %s, %s, %s", s.what, p.name, name, strings.ToUpper(network)),
			strings.Join(slices.Compact(r[:]), "; ")})
	}
	return all
}

// A frontend is asked until all endpoints of the Service have answered, but no less than
// leastAsked times, and no more than mostAsked: a random choice misses one of four endpoints
// once in 25,000 times then.
const leastAsked, mostAsked = 12, 40

// ask returns which endpoints answer a client, and whose address they see.
func ask(from *netlab.Host, network string, to netip.AddrPort, endpoints int) string {
	answers, sources := map[string]bool{}, map[string]bool{}
	for n := 0; n < mostAsked && (n < leastAsked || len(answers) < endpoints); n++ {
		answer, err := insist(from, network, to)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return "refused"
		case isTimeout(err):
			return "no answer"
		case err != nil:
			return "reset" // a connection that was accepted first
		}
		answers[answer.Name] = true
		switch source := answer.Client; {
		case answer.Name == from.Name:
		case source == from.Address(model.FamilyOf(to.Addr())):
			sources["client"] = true
		default:
			sources["node"] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(answers)), ", ") + " (see the " + strings.Join(slices.Sorted(maps.Keys(sources)), " and ") + ")"
}

// refusal is how long a refusal may take: a SYN is sent again after a second, if the ICMP error
// arrives while a client of the same machine is still sending the first one, or is not sent
// because the kernel limits their rate.
const refusal = 3 * time.Second

// insist asks until there is an answer or a refusal.
func insist(from *netlab.Host, network string, to netip.AddrPort) (answer netlab.Answer, err error) {
	for _, wait := range []time.Duration{testbed.Silence, refusal} {
		if answer, err = from.Ask(network, to, wait); !isTimeout(err) {
			break
		}
	}
	return answer, err
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// flows compares what clients get.
func flows(k, n observation) *table {
	x := &table{title: "Flows", anchor: "flows", column: "Service, frontend, client, protocol", all: true,
		about: "Who answers new connections over IPv4 and IPv6, and whether it sees the address of the client or of the node. `pod-0` and `pod-1` are pods of the node, `remote-0` and `remote-1` of others."}
	for i, f := range k.flows {
		x.add(f.what, f.result, n.flows[i].result)
	}
	return x
}
