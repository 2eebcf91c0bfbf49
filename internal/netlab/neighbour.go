package netlab

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// waitForNeighbours waits until a link hears who asks for its IPv6 addresses.
// The kernel joins the group that is asked some time after it has added the
// address, even without duplicate address detection, and whoever asked before
// asks again after a second (TestNeighboursAnswerAtOnce).
func waitForNeighbours(link string, addrs []netip.Prefix) error {
	for deadline := time.Now().Add(timeout); ; {
		groups, err := joinedGroups(link)
		if err != nil {
			return err
		}
		missing := slices.DeleteFunc(slices.Clone(addrs), func(p netip.Prefix) bool {
			return p.Addr().Is4() || slices.Contains(groups, solicitedNode(p.Addr()))
		})
		if len(missing) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("wait for link %s to join the groups of %s: %w", link, missing, os.ErrDeadlineExceeded)
		}
		time.Sleep(100 * time.Microsecond) // between two looks
	}
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
