package machine

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

func kernelFeatures(f *Facts, _ Use) (out []Finding) {
	for _, m := range f.Missing {
		what, remedy := m, ""
		if i := strings.LastIndex(m, ": "); i >= 0 {
			what, remedy = m[:i], m[i+2:]
		}
		out = append(out, Finding{Level: Problem, Message: "the kernel lacks " + what, Remedy: remedy})
	}
	if len(out) > 0 {
		return out
	}
	return okFinding("%s has all features that the rules need", f.Kernel)
}

func tableOwner(f *Facts, _ Use) []Finding {
	switch {
	case f.Owner.PID != 0:
		return okFinding("the tables nftproxy belong to process %s: nftproxy runs here", f.Owner)
	case f.Ownership:
		return okFinding("no other program can change the rules of nftproxy")
	}
	out := okFinding("other programs can change the rules of nftproxy, which repairs them; from kernel 6.9 on they cannot")
	out[0].Documentation = pageOwnership
	return out
}

// forwardingSettings are the sysctls that make the machine a router.
var forwardingSettings = map[model.Family]string{
	model.IPv4: "net.ipv4.ip_forward",
	model.IPv6: "net.ipv6.conf.all.forwarding",
}

func checkForwarding(f *Facts, u Use) (out []Finding) {
	for _, family := range u.servedFamilies(f) {
		setting, state := forwardingSettings[family], f.Forwarding[family]
		if state.On && len(state.Off) == 0 {
			out = append(out, okFinding("%s forwards", family)...)
			continue
		}
		switch endpoint, needed := u.findElsewhere(f, family); {
		case !needed:
			out = append(out, u.okFinding("%s forwards nothing, and no endpoint is on another machine or in a pod", family)...)
		case !state.On:
			out = append(out, Finding{Level: forwardingLevel(family, u), Subject: family.String(), Documentation: forwardingPage(u),
				Message: fmt.Sprintf("%s is 0: connections from other machines do not reach %s", setting, endpointText(u, endpoint.String())),
				Remedy:  forwardingRemedy(family, setting, u)})
		default:
			out = append(out, Finding{Level: Warning, Subject: family.String(), Documentation: forwardingPage(u),
				Message: fmt.Sprintf("net.ipv4.conf.*.forwarding is 0 for %s: what arrives there is not forwarded", joinNames(state.Off)),
				Remedy:  u.Words.Text("set it to 1 for interfaces that clients or pods are reached by")})
		}
	}
	return out
}

// forwardingLevel returns how bad it is not to forward. Most machines have IPv6 without
// serving it.
func forwardingLevel(family model.Family, u Use) Level {
	if family == model.IPv6 && u.Endpoints == nil && !slices.Contains(u.Families, model.IPv6) {
		return Warning
	}
	return Problem
}

func forwardingPage(u Use) string {
	if u.Cluster {
		return pageMachine
	}
	return pageStandalone
}

func endpointText(u Use, endpoint string) string {
	if u.Endpoints == nil {
		return u.Words.Text("endpoints on other machines or in pods")
	}
	return u.Words.Text("endpoints on other machines or in pods, such as ") + endpoint
}

func forwardingRemedy(family model.Family, setting string, u Use) string {
	remedy := "sysctl -w " + setting + "=1, and write it to /etc/sysctl.d/"
	if family == model.IPv6 {
		remedy += "; with routes from router advertisements, set accept_ra=2 on the uplink first"
	}
	if u.Cluster {
		return remedy
	}
	return remedy + "; nftproxy run --manage-sysctl does so"
}

func reversePath(f *Facts, _ Use) []Finding {
	switch several := len(f.Uplinks) > 1 || f.PolicyRules > 0; {
	case len(f.StrictPath) == 0:
		return okFinding("no interface filters by the reverse path in strict mode")
	case !several:
		return okFinding("strict on %s; there is one uplink, so that packets arrive where replies leave", joinNames(f.StrictPath))
	}
	return []Finding{{Level: Warning,
		Message: fmt.Sprintf("rp_filter is strict (1) on %s, and the machine has %s: packets are dropped where replies would leave by another interface",
			joinNames(f.StrictPath), routingText(f)),
		Remedy: "set net.ipv4.conf.*.rp_filter to 2 (loose), or make the routes symmetric"}}
}

func routingText(f *Facts) string {
	if len(f.Uplinks) > 1 {
		return "default routes by " + joinNames(f.Uplinks)
	}
	return terminal.Count(f.PolicyRules, "rule") + " of policy routing"
}

func bridgeNF(f *Facts, u Use) (out []Finding) {
	for _, family := range u.servedFamilies(f) {
		if f.BridgeNF[family] || u.MasqueradeAll {
			continue
		}
		for _, b := range f.Bridges {
			if !b.servesPods(family, u) {
				continue
			}
			setting := map[model.Family]string{model.IPv4: "net.bridge.bridge-nf-call-iptables", model.IPv6: "net.bridge.bridge-nf-call-ip6tables"}[family]
			out = append(out, Finding{Level: b.levelFor(u), Subject: family.String() + " " + b.Name,
				Message: u.Words.Sprintf("%s is not 1: pods on the bridge %s do not reach each other through a Service", setting, b.Name),
				Remedy:  "modprobe br_netfilter && sysctl -w " + setting + "=1, or set masqueradeAll: true"})
		}
	}
	return out
}

// servesPods reports whether two pods on the bridge may talk through a Service: its endpoints
// are there, or not known.
func (b Bridge) servesPods(family model.Family, u Use) bool {
	if b.Ports < 2 || !slices.ContainsFunc(b.Networks, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == family }) {
		return false
	}
	if u.Endpoints == nil {
		return true
	}
	for e := range u.Endpoints {
		if slices.ContainsFunc(b.Networks, func(p netip.Prefix) bool { return p.Contains(e) }) {
			return true
		}
	}
	return false
}

// levelFor is a problem only if endpoints are known to be on the bridge.
func (b Bridge) levelFor(u Use) Level {
	if u.Endpoints != nil && u.Cluster {
		return Problem
	}
	return Warning
}

// Shares of the connection limit, in percent, from which connections are about to be
// dropped.
const (
	conntrackNear = 80
	conntrackFull = 95
	// A bucket of the hash table with more entries than this is slow to search.
	entriesPerBucket = 8
)

func conntrackUse(f *Facts, _ Use) []Finding {
	c := f.Conntrack
	if c.Max == 0 {
		return okFinding("connection tracking is not in use yet")
	}
	use := fmt.Sprintf("%d of %d connections tracked", c.Count, c.Max)
	level := OK
	switch percent := 100 * c.Count / c.Max; {
	case percent >= conntrackFull:
		level = Problem
	case percent >= conntrackNear:
		level = Warning
	case c.Buckets > 0 && c.Max/c.Buckets > entriesPerBucket:
		return []Finding{{Level: Warning, Message: fmt.Sprintf("%s, in a hash table of %d buckets: it gets slow when it fills", use, c.Buckets),
			Remedy: fmt.Sprintf("echo %d > /sys/module/nf_conntrack/parameters/hashsize", c.Max/4)}}
	}
	if level == OK {
		return okFinding("%s", use)
	}
	return []Finding{{Level: level, Documentation: pageMachine, Message: use + ": the kernel drops new connections when the table is full",
		Remedy: "raise net.netfilter.nf_conntrack_max"}}
}
