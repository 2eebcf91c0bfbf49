package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/vishvananda/netlink"
)

// NodePortAddresses returns where the addresses of this machine come from, if
// NodePorts depend on them; else nil: "primary" is an address of the Node object.
func NodePortAddresses(node model.Config) func() ([]netip.Addr, error) {
	if len(node.NodePortAddresses) == 0 {
		return nil
	}
	return InterfaceAddresses
}

// InterfaceAddresses returns the addresses of this machine's interfaces.
func InterfaceAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list interface addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out, nil
}

// WatchAddresses calls changed when an interface gets or loses an address,
// until ctx ends. The watch is in place when it returns.
func WatchAddresses(ctx context.Context, changed func()) error {
	updates := make(chan netlink.AddrUpdate)
	if err := netlink.AddrSubscribeWithOptions(updates, ctx.Done(), netlink.AddrSubscribeOptions{
		// Lost messages may have told of a change.
		ErrorCallback: func(error) { changed() },
	}); err != nil {
		return fmt.Errorf("watch interface addresses: %w", err)
	}
	go func() {
		for range updates {
			changed()
		}
	}()
	return nil
}
