package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
)

// everyClient is the meaning of an unreadable list of denied clients.
var everyClient = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// readSources reads the lists of clients that may connect, and of those that may not. A
// wrong entry never admits a client (4.78): one of allowed clients admits none, and one
// of denied clients, which could be any, denies all.
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
