package source

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	notAnAddress = "is not an IP address: write it like 10.96.0.1 or fd00::1"
	notARange    = "is not an IP range: write it like 10.0.0.0/8 or fd00::/64"
)

// parseAddress reads an address as the API server's own lenient parser does:
// IPv4 digits are decimal even with leading zeros (1.33), and IPv4-mapped IPv6
// is IPv4 (1.35). A problem is returned where it cannot.
func parseAddress(s string) (netip.Addr, string) {
	a, err := netip.ParseAddr(decimal(s))
	switch {
	case err != nil && strings.Contains(s, "/"):
		return netip.Addr{}, "is a range, not an IP address: leave out the part from '/' on"
	case err != nil:
		return netip.Addr{}, notAnAddress
	case a.Zone() != "":
		return netip.Addr{}, "has a zone: leave out the part from '%' on"
	}
	return a.Unmap(), ""
}

// parsePrefix reads a CIDR by the same rules and masks off the host bits
// (1.34).
func parsePrefix(s string) (netip.Prefix, string) {
	text, length, found := strings.Cut(s, "/")
	a, err := netip.ParseAddr(decimal(text))
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, notARange
	}
	if !found {
		return netip.Prefix{}, "has no prefix length: write " + strconv.Quote(netip.PrefixFrom(a, a.BitLen()).String()) + " for one address"
	}
	bits, err := strconv.ParseUint(length, 10, 16)
	if err != nil || int(bits) > a.BitLen() {
		return netip.Prefix{}, "has a wrong prefix length: use 0 to " + strconv.Itoa(a.BitLen()) + " after the '/'"
	}
	if a.Is4In6() {
		const mapped = 96
		if bits < mapped {
			return netip.Prefix{}, "is wider than the IPv4-mapped addresses: use 96 to 128 after the '/'"
		}
		a, bits = a.Unmap(), bits-mapped
	}
	return netip.PrefixFrom(a, int(bits)).Masked(), ""
}

// leadingZeros finds numbers of several digits that begin with zeros.
var leadingZeros = regexp.MustCompile(`(^|[.:])0+([0-9])`)

// decimal removes the leading zeros of the dotted numbers of an address, which
// netip refuses because some programs read them as octal.
func decimal(s string) string {
	if strings.Contains(s, ".") && (strings.HasPrefix(s, "0") || strings.Contains(s, ".0") || strings.Contains(s, ":0")) {
		colon := strings.LastIndexByte(s, ':') + 1
		return s[:colon] + leadingZeros.ReplaceAllString(s[colon:], "$1$2")
	}
	return s
}

// parseFrontend reads an address that clients dial.
func parseFrontend(s string) (netip.Addr, string) {
	a, problem := parseAddress(s)
	if problem == "" {
		problem = specialProblem(a)
	}
	return a, problem
}

// parseEndpoint reads the address of an endpoint. The API server refuses
// link-local ones: they would lead to the node's own metadata service.
func parseEndpoint(s string) (netip.Addr, string) {
	a, problem := parseAddress(s)
	switch {
	case problem != "":
	case a.IsLinkLocalUnicast():
		problem = "is a link-local address: use one that other nodes can reach"
	default:
		problem = specialProblem(a)
	}
	return a, problem
}

func specialProblem(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "is the unspecified address: use a unicast address"
	case a.IsLoopback():
		return "is a loopback address: use one that other nodes can reach"
	case a.IsMulticast():
		return "is a multicast address: use a unicast address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "is the broadcast address: use a unicast address"
	}
	return ""
}

// families are the IP families by their names in the API.
var families = map[corev1.IPFamily]model.Family{corev1.IPv4Protocol: model.IPv4, corev1.IPv6Protocol: model.IPv6}

func isFamily(f corev1.IPFamily) bool { return f == corev1.IPv4Protocol || f == corev1.IPv6Protocol }
