package neighbours

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

func gvk(apiVersion, kind string) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

// patience is how long a test waits for traffic to be served, which takes seconds on a
// busy machine.
const patience = 2 * time.Minute

func eventually(t *testing.T, f func() error) {
	t.Helper()
	netlab.Eventually(t, patience, f)
}

// forEachFlow runs f over the protocols and families.
func forEachFlow(f func(network string, family model.Family)) {
	for _, family := range model.Families {
		for _, network := range []string{"tcp", "udp"} {
			f(network, family)
		}
	}
}

// serviceMix is Services whose traffic a network plugin can break.
type serviceMix struct {
	itself, same, other *service // with one endpoint: the first pod, the second, one of the second node
	local, sticky       *service // with all pods as endpoints
}

// addMix adds the Services for two nodes, the first of which has two pods.
func (n *nodes) addMix() serviceMix {
	first, second := n.all[0], n.all[1]
	pods := slices.Concat(first.pods, second.pods)
	return serviceMix{
		itself: n.addService("itself", nil, first.pods[0]),
		same:   n.addService("same", nil, first.pods[1]),
		other:  n.addService("other", nil, second.pods[0]),
		local:  n.addService("local", localPolicy, pods...),
		sticky: n.addService("sticky", affinity, pods...),
	}
}

// check dials all Services of the mix from where it matters. It returns the first
// failure.
func (m serviceMix) check(n *nodes) error {
	first, second := n.all[0], n.all[1]
	pod := first.pods[0]
	var err error
	forEachFlow(func(network string, f model.Family) {
		own := pod.Address(f)
		// Plugins may masquerade what leaves a node, for Services as for pods.
		direct, e := pod.Ask(network, addrPort(second.pods[0].Address(f), testbed.EchoPort), testbed.Silence)
		if e != nil && err == nil {
			err = fmt.Errorf("a pod, one of another node, %s %s: %w", network, f, e)
		}
		for _, c := range []struct {
			what   string
			from   *netlab.Host
			to     testbed.Target
			answer string
			client []netip.Addr // as the endpoint may see it; none: any
		}{
			{"a pod reaches itself", pod, m.itself.target(network, f), pod.Name, nil},
			{"a pod, an endpoint of its node", pod, m.same.target(network, f), first.pods[1].Name, addrs(own)},
			{"a pod, an endpoint of another node", pod, m.other.target(network, f), second.pods[0].Name, addrs(direct.Client)},
			{"the node, an endpoint on it", first.Host, m.same.target(network, f), first.pods[1].Name, nil},
			{"the node, an endpoint of another node", first.Host, m.other.target(network, f), second.pods[0].Name, nil},
			{"a pod, a NodePort of another node", pod, m.same.nodePort(second, network, f), first.pods[1].Name, nil},
			{"a client, an endpoint of the node", n.client, m.same.nodePort(first, network, f), first.pods[1].Name, nil},
			{"a client, an endpoint of another node", n.client, m.other.nodePort(first, network, f), second.pods[0].Name, nil},
			{"a client, external traffic policy Local", n.client, m.local.nodePort(second, network, f), second.pods[0].Name,
				addrs(n.client.Address(f))},
		} {
			if err == nil {
				err = asks(c.what, c.from, c.to, c.answer, c.client)
			}
		}
		for _, to := range []testbed.Target{m.sticky.nodePort(first, network, f), m.sticky.target(network, f)} {
			from := n.client
			if to.To.Port() == testbed.ServicePort {
				from = first.pods[1] // only pods have a route to ClusterIPs
			}
			if err == nil {
				err = staysWithOne(from, to)
			}
		}
	})
	return err
}

// asks makes connections, which one endpoint must answer.
func asks(what string, from *netlab.Host, to testbed.Target, answer string, clients []netip.Addr) error {
	for range 2 {
		got, err := from.Ask(to.Network, to.To, testbed.Silence)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", what, to, err)
		}
		if got.Name != answer || len(clients) > 0 && !slices.Contains(clients, got.Client) {
			return fmt.Errorf("%s, %s: %s sees the client %s, want %s and %s", what, to, got.Name, got.Client, answer, clients)
		}
	}
	return nil
}

// staysWithOne makes connections, which the same endpoint must answer.
func staysWithOne(from *netlab.Host, to testbed.Target) error {
	var first string
	for range 6 {
		got, err := from.Ask(to.Network, to.To, testbed.Silence)
		if err != nil {
			return fmt.Errorf("session affinity, %s: %w", to, err)
		}
		if first == "" {
			first = got.Name
		}
		if got.Name != first {
			return fmt.Errorf("session affinity, %s: answers of %s and %s", to, first, got.Name)
		}
	}
	return nil
}

// works waits until all traffic is served.
func (m serviceMix) works(n *nodes) {
	n.t.Helper()
	eventually(n.t, func() error { return m.check(n) })
}

func addrs(a ...netip.Addr) []netip.Addr { return a }

func addrPort(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }
