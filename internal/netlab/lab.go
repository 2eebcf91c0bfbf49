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
	IPv4, IPv6 netip.Addr

	port atomic.Uint32 // last source port used by Open
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
}

// Address ranges of the laboratory. Everything else that the client or a pod
// dials goes to the node, and comes back to the client when the node has no
// use for it.
var (
	PodCIDRv4 = netip.MustParsePrefix("10.128.0.0/24")
	PodCIDRv6 = netip.MustParsePrefix("fd00:10:128::/64")

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

// Close removes everything.
func (l *Lab) Close() error {
	var errs []error
	for _, h := range append([]*Host{l.Client, l.Node}, l.Pods...) {
		if h != nil {
			errs = append(errs, h.Close())
		}
	}
	return errors.Join(errs...)
}

// IsNode tells whether a belongs to the node, on the side of the client or on
// that of the pods.
func (l *Lab) IsNode(a netip.Addr) bool {
	own := []netip.Addr{l.Node.IPv4, l.Node.IPv6, nth(PodCIDRv4, 1), nth(PodCIDRv6, 1)}
	return slices.Contains(own, a)
}

func (l *Lab) build(pods int) (err error) {
	if l.Node, err = newHost("node", uplinkv4, uplinkv6, 1, nodeSysctls...); err != nil {
		return err
	}
	if l.Client, err = newHost("client", uplinkv4, uplinkv6, 2); err != nil {
		return err
	}
	if err := l.connectClient(); err != nil {
		return err
	}
	for i := range pods {
		name := fmt.Sprintf("pod-%d", i)
		pod, err := newHost(name, PodCIDRv4, PodCIDRv6, i+2)
		if err != nil {
			return err
		}
		l.Pods = append(l.Pods, pod)
		if err := l.connectPod(pod); err != nil {
			return err
		}
	}
	return nil
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
