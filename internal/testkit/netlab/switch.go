package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
)

// Switch joins hosts by a bridge in a namespace of its own. They are in the
// networks of the client of a [Lab], in which n is their number.
type Switch struct {
	*Namespace
	hosts []*Host
}

// NewSwitch makes a switch without hosts.
func NewSwitch() (*Switch, error) {
	ns, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	s := &Switch{Namespace: ns}
	if err := s.Do(func() error { return addBridge(Bridge) }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// AddHost plugs a new host into the switch. Everything that the host has no other
// route for goes to the switch's networks.
func (s *Switch) AddHost(name string, n int) (*Host, error) { return s.add(name, n) }

// AddRouter plugs a new host that forwards into the switch.
func (s *Switch) AddRouter(name string, n int) (*Host, error) { return s.add(name, n, nodeSysctls...) }

// Close removes the switch and its hosts.
func (s *Switch) Close() error {
	var errs []error
	for _, h := range s.hosts {
		errs = append(errs, h.Close())
	}
	return errors.Join(append(errs, s.Namespace.Close())...)
}

func (s *Switch) add(name string, n int, settings ...[2]string) (*Host, error) {
	h, err := newHost(name, uplinkv4, uplinkv6, n, settings...)
	if err != nil {
		return nil, err
	}
	s.hosts = append(s.hosts, h)
	if err := s.plug(h); err != nil {
		return nil, fmt.Errorf("plug %s into the switch: %w", name, err)
	}
	return h, nil
}

func (s *Switch) plug(h *Host) error {
	err := s.Do(func() error {
		if err := addVeth(h.Name, h.Handle(), uplink); err != nil {
			return err
		}
		_, err := join(Bridge, h.Name)
		return err
	})
	if err != nil {
		return err
	}
	return h.Do(func() error {
		if err := linkUp(uplink); err != nil {
			return err
		}
		return addAddresses(uplink, netip.PrefixFrom(h.IPv4, uplinkv4.Bits()), netip.PrefixFrom(h.IPv6, uplinkv6.Bits()))
	})
}

// AddRoute adds a route of the host to a network, by a gateway on the switch.
func (h *Host) AddRoute(to netip.Prefix, gateway netip.Addr) error {
	return h.Do(func() error {
		if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(to), Gw: gateway.AsSlice()}); err != nil {
			return fmt.Errorf("add route to %s: %w", to, err)
		}
		return nil
	})
}

// NewPod makes a host without links, for another program to configure.
func NewPod(name string) (*Host, error) { return newHost(name, PodCIDRv4, PodCIDRv6, 0) }

// Path returns a file that other processes can enter the namespace by, for as
// long as this process has not closed it.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Handle()) }
