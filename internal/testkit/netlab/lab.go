package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Host is a namespace with one address per family.
type Host struct {
	*Namespace
	Name       string
	NodeName   string // of the node that it is or runs on; empty: outside
	IPv4, IPv6 netip.Addr

	alias bool          // whether Open dials from the address of the host
	at    bool          // whether flows must be opened from certain ports
	port  atomic.Uint32 // last source port used by Open
}

// Address returns the address of the host in a family.
func (h *Host) Address(f model.Family) netip.Addr {
	if f == model.IPv6 {
		return h.IPv6
	}
	return h.IPv4
}

// Lab is a node with its pods and a client outside of the cluster.
type Lab struct {
	Node   *Host
	Client *Host
	Pods   []*Host
	Remote []*Host // pods of other nodes
	// Bridged are pods of the node on one bridge, as the plugin "bridge" makes
	// them.
	Bridged []*Host

	behind []*Host // other machines
	echoes []*Echo
}

// Address ranges of the laboratory. Everything else that the client or a pod
// dials goes to the node, and comes back to the client when the node has no
// use for it.
var (
	PodCIDRv4 = netip.MustParsePrefix("10.128.0.0/24")
	PodCIDRv6 = netip.MustParsePrefix("fd00:10:128::/64")

	// Of the pods of other nodes, and of all pods.
	RemoteCIDRv4 = netip.MustParsePrefix("10.128.1.0/24")
	RemoteCIDRv6 = netip.MustParsePrefix("fd00:10:128:1::/64")
	// Of the pods on the bridge.
	BridgeCIDRv4 = netip.MustParsePrefix("10.128.2.0/24")
	BridgeCIDRv6 = netip.MustParsePrefix("fd00:10:128:2::/64")

	ClusterCIDRv4 = netip.MustParsePrefix("10.128.0.0/16")
	ClusterCIDRv6 = netip.MustParsePrefix("fd00:10:128::/48")

	uplinkv4 = netip.MustParsePrefix("192.0.2.0/24")
	uplinkv6 = netip.MustParsePrefix("2001:db8::/64")
)

// New builds a laboratory with a number of pods, which are named pod-0, pod-1
// and so on.
func New(pods int) (*Lab, error) {
	l := &Lab{}
	if err := l.build(pods); err != nil {
		return nil, errors.Join(fmt.Errorf("build laboratory: %w", err), l.Close())
	}
	return l, nil
}

// EchoOnPods starts an echo server on each pod of the node. They end with the
// laboratory.
func (l *Lab) EchoOnPods(port uint16) error {
	for _, p := range l.Pods {
		e, err := p.Echo(port)
		if err != nil {
			return err
		}
		l.echoes = append(l.echoes, e)
	}
	return nil
}

// Close removes everything.
func (l *Lab) Close() error {
	var errs []error
	for _, e := range l.echoes {
		errs = append(errs, e.Close())
	}
	for _, h := range slices.Concat([]*Host{l.Client, l.Node}, l.Pods, l.Remote, l.Bridged, l.behind) {
		if h != nil {
			errs = append(errs, h.Close())
		}
	}
	return errors.Join(errs...)
}

// IsNode reports whether a belongs to the node, on the client's or on the pods'
// side.
func (l *Lab) IsNode(a netip.Addr) bool {
	own := []netip.Addr{l.Node.IPv4, l.Node.IPv6, nth(PodCIDRv4, 1), nth(PodCIDRv6, 1),
		nth(RemoteCIDRv4, 1), nth(RemoteCIDRv6, 1), nth(BridgeCIDRv4, 1), nth(BridgeCIDRv6, 1)}
	return slices.Contains(own, a)
}

// Gateway returns the address that the node has on the link to a pod: the source
// that the pod sees of a client that is masqueraded.
func (l *Lab) Gateway(pod *Host, f model.Family) netip.Addr {
	for _, p := range []netip.Prefix{PodCIDRv4, PodCIDRv6, RemoteCIDRv4, RemoteCIDRv6} {
		if p.Contains(pod.Address(f)) {
			return nth(p, 1)
		}
	}
	return netip.Addr{}
}

// AddRemotePods adds pods of other nodes, which are named remote-0, remote-1
// and so on. Each is on a node of its own, so that all packets between them
// pass this node; those nodes would only forward, and are left out.
func (l *Lab) AddRemotePods(n int) error {
	for range n {
		name := fmt.Sprintf("remote-%d", len(l.Remote))
		pod, err := l.addPod(name, RemoteCIDRv4, RemoteCIDRv6, len(l.Remote)+2)
		if err != nil {
			return fmt.Errorf("add remote pod: %w", err)
		}
		pod.NodeName = "remote"
		l.Remote = append(l.Remote, pod)
	}
	return nil
}

// Bridge is the name of the bridge that AddBridgedPods makes.
const Bridge = "cni0"

// AddBridgedPods adds a bridge to the node and pods to that, which are named
// bridged-0, bridged-1 and so on. The bridge has the addresses of their gateway,
// and its ports send packets back where they came from (hairpin mode).
func (l *Lab) AddBridgedPods(n int) error {
	if err := l.addBridge(); err != nil {
		return fmt.Errorf("add bridge: %w", err)
	}
	for i := range n {
		pod, err := newHost(fmt.Sprintf("bridged-%d", i), BridgeCIDRv4, BridgeCIDRv6, i+2)
		if err != nil {
			return fmt.Errorf("add pod to bridge: %w", err)
		}
		pod.NodeName = l.Node.Name
		l.Bridged = append(l.Bridged, pod)
		if err := l.connectBridged(pod); err != nil {
			return fmt.Errorf("add pod to bridge: %w", err)
		}
	}
	return nil
}

func (l *Lab) build(pods int) (err error) {
	if l.Node, err = newHost("node", uplinkv4, uplinkv6, 1, nodeSysctls...); err != nil {
		return err
	}
	l.Node.NodeName = l.Node.Name
	if l.Client, err = newHost("client", uplinkv4, uplinkv6, 2); err != nil {
		return err
	}
	if err := l.connectClient(); err != nil {
		return err
	}
	for i := range pods {
		pod, err := l.addPod(fmt.Sprintf("pod-%d", i), PodCIDRv4, PodCIDRv6, i+2)
		if err != nil {
			return err
		}
		pod.NodeName = l.Node.Name
		l.Pods = append(l.Pods, pod)
	}
	return nil
}

// addPod makes the n-th host of two networks and links it to the node.
func (l *Lab) addPod(name string, v4, v6 netip.Prefix, n int) (*Host, error) {
	pod, err := newHost(name, v4, v6, n)
	if err != nil {
		return nil, err
	}
	if err := l.connectPod(pod); err != nil {
		return nil, errors.Join(err, pod.Close())
	}
	return pod, nil
}

// newHost makes a namespace for the n-th addresses of two networks.
func newHost(name string, v4, v6 netip.Prefix, n int, settings ...[2]string) (*Host, error) {
	ns, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	h := &Host{Namespace: ns, Name: name, IPv4: nth(v4, n), IPv6: nth(v6, n)}
	h.port.Store(firstPort)
	err = h.Do(func() error {
		if err := sysctl(append(slices.Clone(hostSysctls), settings...)); err != nil {
			return err
		}
		return linkUp("lo")
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare %s: %w", name, err), ns.Close())
	}
	return h, nil
}

// nth returns the n-th address of a network.
func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Addr()
	for range n {
		a = a.Next()
	}
	return a
}
