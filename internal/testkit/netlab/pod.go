package netlab

import (
	"errors"
	"fmt"
	"net/netip"
)

// AddPod links a new host to this one, which becomes its gateway: they have the
// second and the first address of two networks.
func (h *Host) AddPod(name string, v4, v6 netip.Prefix) (*Host, error) {
	pod, err := newHost(name, v4, v6, 2)
	if err != nil {
		return nil, err
	}
	pod.NodeName = h.Name
	if err := h.route(pod, nth(v4, 1), nth(v6, 1)); err != nil {
		return nil, errors.Join(fmt.Errorf("link %s to %s: %w", name, h.Name, err), pod.Close())
	}
	return pod, nil
}

// route links a pod, and is its gateway.
func (h *Host) route(pod *Host, gateway4, gateway6 netip.Addr) error {
	err := h.Do(func() error {
		if err := addVeth(pod.Name, pod.Handle(), "eth0"); err != nil {
			return err
		}
		if err := addAddresses(pod.Name, single(gateway4), single(gateway6)); err != nil {
			return err
		}
		return addLinkRoutes(pod.Name, pod.IPv4, pod.IPv6)
	})
	if err != nil {
		return err
	}
	return pod.Do(func() error {
		if err := linkUp("eth0"); err != nil {
			return err
		}
		if err := addAddresses("eth0", single(pod.IPv4), single(pod.IPv6)); err != nil {
			return err
		}
		if err := addLinkRoutes("eth0", gateway4, gateway6); err != nil {
			return err
		}
		return addDefaultRoutes("eth0", gateway4, gateway6)
	})
}
