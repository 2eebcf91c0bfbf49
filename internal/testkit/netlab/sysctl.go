package netlab

import (
	"fmt"
	"os"
	"path/filepath"
)

// hostSysctls hold for every namespace, and must be set before it gets
// interfaces. Every connection that is refused gets an answer.
var hostSysctls = [][2]string{
	// Skip duplicate address detection: addresses are unique.
	{"net/ipv6/conf/all/accept_dad", "0"},
	{"net/ipv6/conf/default/accept_dad", "0"},
	{"net/ipv6/conf/default/dad_transmits", "0"},
	{"net/ipv6/conf/default/accept_ra", "0"},
	// The strictest of "all" and the interface counts.
	{"net/ipv4/conf/all/rp_filter", "0"},
	{"net/ipv4/conf/default/rp_filter", "0"},
	// By default the kernel answers a client once in a second,
	{"net/ipv4/icmp_ratemask", "0"},
	{"net/ipv6/icmp/ratelimit", "0"},
	// and all clients a thousand times. Type 1, unreachable, is left out.
	{"net/ipv6/icmp/ratemask", "0,3-127"},
}

// nodeSysctls make a host a router.
var nodeSysctls = [][2]string{
	{"net/ipv4/ip_forward", "1"},
	{"net/ipv6/conf/all/forwarding", "1"},
	{"net/ipv4/conf/all/send_redirects", "0"},
	{"net/ipv4/conf/default/send_redirects", "0"},
}

// sysctl writes settings of the namespace of the calling thread.
func sysctl(settings [][2]string) error {
	for _, s := range settings {
		if err := os.WriteFile(filepath.Join("/proc/sys", s[0]), []byte(s[1]), 0); err != nil {
			return fmt.Errorf("set sysctl: %w", err)
		}
	}
	return nil
}
