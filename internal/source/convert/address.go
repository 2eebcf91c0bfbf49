package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/utils/net"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

const (
	NotAnAddress = "is not an IP address: write it like 10.96.0.1 or fd00::1"
	notARange    = "is not an IP range: write it like 10.0.0.0/8 or fd00::/64"
)

// ParseAddress reads an address as the API server does: IPv4 digits are decimal even with leading zeros (1.33), and
// IPv4-mapped IPv6 is IPv4 (1.35). Otherwise it returns the problem.
func ParseAddress(s string) (netip.Addr, string) {
	if len(s) < len("::") { // takes no memory for an error
		return netip.Addr{}, NotAnAddress
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		var ok bool
		if a, ok = netip.AddrFromSlice(utilnet.ParseIPSloppy(s)); !ok && strings.Contains(s, "/") {
			return a, "is a range, not an IP address: leave out the part from '/' on"
		} else if !ok {
			return a, NotAnAddress
		}
	}
	if a.Zone() != "" {
		return a, "has a zone: leave out the part from '%' on"
	}
	return a.Unmap(), ""
}

// ParsePrefix reads a CIDR by the same rules and clears the host bits (1.34).
func ParsePrefix(s string) (netip.Prefix, string) {
	text, _, found := strings.Cut(s, "/")
	if !found {
		return netip.Prefix{}, noLength(text)
	}
	// The library takes five times as long.
	if p, err := netip.ParsePrefix(s); err == nil && !p.Addr().Is4In6() {
		return p.Masked(), ""
	}
	ip, n, err := utilnet.ParseCIDRSloppy(s)
	if err != nil {
		a, problem := ParseAddress(text)
		if problem != "" {
			return netip.Prefix{}, notARange
		}
		return netip.Prefix{}, "has a wrong prefix length: use 0 to " + strconv.Itoa(a.BitLen()) + " after the '/'"
	}
	a, _ := netip.AddrFromSlice(ip)
	a = a.Unmap()
	length, bits := n.Mask.Size()
	if length -= bits - a.BitLen(); length < 0 {
		return netip.Prefix{}, "is wider than the IPv4-mapped addresses: use 96 to 128 after the '/'"
	}
	return netip.PrefixFrom(a, length).Masked(), ""
}

func noLength(text string) string {
	a, problem := ParseAddress(text)
	if problem != "" {
		return notARange
	}
	return "has no prefix length: write " + strconv.Quote(netip.PrefixFrom(a, a.BitLen()).String()) + " for one address"
}

// ParseFrontend reads an address that clients dial.
func ParseFrontend(s string) (netip.Addr, string) {
	a, problem := ParseAddress(s)
	if problem == "" {
		problem = specialProblem(a)
	}
	return a, problem
}

// ParseEndpoint reads the address of an endpoint, or an external IP. The API server
// refuses link-local ones: they would lead to the node's own metadata service.
func ParseEndpoint(s string) (netip.Addr, string) {
	a, problem := ParseAddress(s)
	switch {
	case a.IsLinkLocalUnicast(): // with or without a zone
		problem = "is a link-local address: use one that can be routed"
	case problem != "":
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
		return "is a loopback address, which only the machine itself reaches: use an address of one of its interfaces"
	case a.IsMulticast():
		return "is a multicast address: use a unicast address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "is the broadcast address: use a unicast address"
	}
	return ""
}

var families = map[corev1.IPFamily]model.Family{corev1.IPv4Protocol: model.IPv4, corev1.IPv6Protocol: model.IPv6}

// everyClient is the meaning of an unreadable list of denied clients.
var everyClient = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// readSources reads the lists of clients that may connect, and of those that may not. A wrong entry never admits a
// client (4.78): one of allowed clients admits none, and one of denied clients, which could be any, denies all.
func (f *Findings) readSources(m *metav1.ObjectMeta) *model.Sources {
	text, limited := m.Annotations[setting.AllowedClients.Annotation]
	allowed, wrong := f.clientList(setting.AllowedClients.Annotation, text)
	if limited && len(allowed) == 0 {
		problem := "is empty: no client can connect; list addresses or ranges, or remove the annotation"
		if wrong {
			problem = "has no valid entry: no client can connect until one is corrected"
		}
		f.Warn(annotationField(setting.AllowedClients.Annotation), nil, problem)
	}
	denied, wrong := f.clientList(setting.DeniedClients.Annotation, m.Annotations[setting.DeniedClients.Annotation])
	if wrong {
		f.Warn(annotationField(setting.DeniedClients.Annotation), nil, "has a wrong entry, which could stand for any client: no client can connect until it is corrected")
		denied = everyClient
	}
	return model.NewSources(limited, allowed, denied)
}

// warnOfFamilies warns of a list of allowed clients that admits none of the families in which
// the Service has addresses.
func (c *serviceConverter) warnOfFamilies(s *model.Service) {
	sources := s.Extra().Sources
	if sources == nil || len(sources.Allowed) == 0 {
		return
	}
	addresses := slices.Clone(s.ClusterIPs)
	if s.External != nil {
		addresses = append(addresses, s.External.LoadBalancerIPs...)
	}
	admitted := func(a netip.Addr) bool {
		return slices.ContainsFunc(sources.Allowed, func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() })
	}
	if len(addresses) > 0 && !slices.ContainsFunc(addresses, admitted) {
		c.Warn(c.placeOf(setting.AllowedClients), nil,
			fmt.Sprintf("has no %s range: no client can connect to %s; list ranges of that family", model.FamilyOf(addresses[0]), addresses[0]))
	}
}

// clientList reads a list of clients, and reports whether an entry is wrong.
func (f *Findings) clientList(annotation, text string) (out []netip.Prefix, wrong bool) {
	count := f.readEntries(annotation, text, f.Add, func(_ int, entry string) string {
		if entry == "" {
			return ""
		}
		p, problem := ParseClients(entry)
		if problem == "" {
			out = append(out, p)
		}
		return problem
	})
	return out, count > 0
}

// ParseClients reads the address of a client, or a range of such addresses.
func ParseClients(text string) (netip.Prefix, string) {
	if strings.Contains(text, "/") {
		p, problem := ParsePrefix(text)
		if problem == notARange {
			problem = notClients
		}
		return p, problem
	}
	a, problem := ParseAddress(text)
	switch {
	case problem == NotAnAddress:
		return netip.Prefix{}, notClients
	case problem != "":
		return netip.Prefix{}, problem
	case a.IsUnspecified():
		return netip.Prefix{}, "is not a client address: write " + netip.PrefixFrom(a, 0).String() + " for all clients"
	case specialProblem(a) != "":
		return netip.Prefix{}, "is not an address that clients have: write it like 192.0.2.7 or fd00::1"
	}
	return netip.PrefixFrom(a, a.BitLen()), ""
}

const notClients = "is neither an IP address nor a range: write it like 192.0.2.7, 10.0.0.0/8 or fd00::/64"
