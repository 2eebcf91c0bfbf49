package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// waitForNeighbours waits until a link receives neighbour solicitations for its
// IPv6 addresses. The kernel joins the solicited-node group some time after it
// has added the address, even without duplicate address detection, and a client
// that asked before asks again after a second
// (TestNeighboursAnswerImmediately).
func waitForNeighbours(link string, addrs []netip.Prefix) error {
	err := awaitAll(addrs, func(a netip.Addr) (bool, error) {
		groups, err := joinedGroups(link)
		return slices.Contains(groups, solicitedNode(a)), err
	})
	if err != nil {
		return fmt.Errorf("wait for link %s to join the multicast groups of its addresses: %w", link, err)
	}
	return nil
}

// waitForDelivery waits until packets to IPv6 addresses of the loopback interface
// are delivered. The kernel adds the local route in the background as well
// (TestAddedAddressIsUsable).
func waitForDelivery(addrs []netip.Prefix) error {
	err := awaitAll(addrs, func(a netip.Addr) (bool, error) {
		routes, err := netlink.RouteGet(a.AsSlice())
		if errors.Is(err, unix.ENETUNREACH) {
			return false, nil
		}
		return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, err
	})
	if err != nil {
		return fmt.Errorf("wait for local routes: %w", err)
	}
	return nil
}

// awaitAll waits until all IPv6 addresses are ready.
func awaitAll(addrs []netip.Prefix, ready func(netip.Addr) (bool, error)) error {
	for _, p := range addrs {
		if p.Addr().Is4() {
			continue
		}
		if err := until(timeout, func() (bool, error) { return ready(p.Addr()) }); err != nil {
			return fmt.Errorf("%s: %w", p.Addr(), err)
		}
	}
	return nil
}

// until waits until something is ready.
func until(wait time.Duration, ready func() (bool, error)) error {
	var failed error
	err := await.Poll(wait, 100*time.Microsecond, func() error {
		ok, err := ready()
		if failed = err; ok || err != nil {
			return nil
		}
		return os.ErrDeadlineExceeded
	})
	return errors.Join(failed, err)
}

// joinedGroups returns the IPv6 multicast groups of a link.
func joinedGroups(link string) ([]string, error) {
	table, err := os.ReadFile("/proc/thread-self/net/igmp6")
	if err != nil {
		return nil, fmt.Errorf("read multicast groups: %w", err)
	}
	var groups []string
	for line := range strings.Lines(string(table)) {
		// Index of the link, its name, group, and more.
		if f := strings.Fields(line); len(f) > 2 && f[1] == link {
			groups = append(groups, f[2])
		}
	}
	return groups, nil
}

// solicitedNode returns the multicast group in which neighbours ask for an
// address (RFC 4291, 2.7.1), in the form of /proc/net/igmp6.
func solicitedNode(a netip.Addr) string {
	b := a.As16()
	return fmt.Sprintf("ff0200000000000000000001ff%x", b[13:])
}
