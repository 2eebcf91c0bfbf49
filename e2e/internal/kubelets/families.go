package kubelets

import (
	"fmt"
	"strings"
)

// Families are the address families of a cluster.
type Families string

const (
	IPv4      Families = "ipv4"
	IPv6      Families = "ipv6"
	DualStack Families = "dual" // IPv4 first
	// DualStackIPv6 has IPv6 first: nodes, pods and Services are IPv6 by default.
	DualStackIPv6 Families = "dual-ipv6"
)

// ParseFamilies reads the name of families.
func ParseFamilies(s string) (Families, error) {
	switch f := Families(s); f {
	case IPv4, IPv6, DualStack, DualStackIPv6:
		return f, nil
	}
	return "", fmt.Errorf("families %q: want ipv4, ipv6, dual or dual-ipv6", s)
}

func (f Families) has4() bool { return f != IPv6 }
func (f Families) has6() bool { return f != IPv4 }

// pick returns what the cluster has of each family, in its order.
func (f Families) pick(v4, v6 string) []string {
	switch f {
	case IPv4:
		return []string{v4}
	case IPv6:
		return []string{v6}
	case DualStackIPv6:
		return []string{v6, v4}
	default:
		return []string{v4, v6}
	}
}

// list is pick, separated by commas.
func (f Families) list(v4, v6 string) string { return strings.Join(f.pick(v4, v6), ",") }

// first returns that of the first family.
func (f Families) first(v4, v6 string) string { return f.pick(v4, v6)[0] }

// Addresses of the cluster. Nodes have 172.30.0.11 and fd00:30::11 onwards.
const (
	control4, control6   = "172.30.0.1", "fd00:30::1"
	pods4, pods6         = "10.244.0.0/16", "fd00:10:244::/48"
	services4, services6 = "10.96.0.0/16", "fd00:10:96::/112"
	dns4, dns6           = "10.96.0.10", "fd00:10:96::a"
)

// maxNodes is limited by the addresses: each node has 1,022 for pods.
const maxNodes = 9

func node4(i int) string     { return fmt.Sprintf("172.30.0.1%d", i) }
func node6(i int) string     { return fmt.Sprintf("fd00:30::1%d", i) }
func nodePods4(i int) string { return fmt.Sprintf("10.244.%d.0/22", 4*i) }
func nodePods6(i int) string { return fmt.Sprintf("fd00:10:244:%d::/64", i) }
