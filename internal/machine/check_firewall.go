package machine

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// passage says whether a filter lets new connections to endpoints pass.
type passage uint8

const (
	dropped  passage = iota // nothing accepts them
	perhaps                 // a rule may accept them
	accepted                // a rule accepts them
)

// forwardFilter looks at the filters that forwarded packets pass. Each of them must
// accept.
func forwardFilter(f *Facts, u Use) (out []Finding) {
	for i := range f.Chains {
		if c := &f.Chains[i]; c.Type == "filter" && c.Hook == Forward {
			out = append(out, filterOf(f, u, c)...)
		}
	}
	return out
}

// filterOf returns a finding for each family whose connections the filter drops, or one
// for both.
func filterOf(f *Facts, u Use, c *Chain) (out []Finding) {
	families := u.servedFamilies(f)
	for _, family := range families {
		if !c.seesFamily(family) {
			continue
		}
		w := walk{facts: f, use: u, family: family, seen: make(map[string]bool)}
		ends := w.walkChain(c)
		if !ends && !c.Drops || w.result == accepted {
			continue
		}
		if _, needed := u.findElsewhere(f, family); needed {
			out = append(out, w.newFinding(c))
		}
	}
	switch {
	case len(out) == 2 && out[0].Message == out[1].Message:
		return out[:1]
	case len(families) == 2 && c.Family == "inet":
		for i := range out {
			family, _, _ := strings.Cut(out[i].Subject, ",")
			out[i].Message = family + ": " + out[i].Message
		}
	}
	return out
}

func (c *Chain) seesFamily(f model.Family) bool {
	return c.Family == "inet" || c.Family == "ip" && f == model.IPv4 || c.Family == "ip6" && f == model.IPv6
}

// walk follows a new connection of a family to an endpoint through the chains of a table.
type walk struct {
	facts  *Facts
	use    Use
	family model.Family
	seen   map[string]bool
	result passage
	// drops are the rules that may drop it under a condition, and end is what drops what comes to the end.
	drops []string
	end   string
	// kubeProxy reports that only kube-proxy's chains accept it.
	kubeProxy bool
}

// walkChain reports whether no packet leaves the chain by its end.
func (w *walk) walkChain(c *Chain) (ends bool) {
	if w.seen[c.Name] {
		return false
	}
	w.seen[c.Name] = true
	for i, r := range c.Rules {
		if w.result == accepted {
			return false
		}
		switch {
		case w.excludesEndpoints(r):
		case r.Verdict == Drop && len(r.When) == 0:
			w.end = ruleText(c, i)
			return true
		case r.Verdict == Drop:
			w.drops = append(w.drops, ruleText(c, i))
		case r.Verdict == Accept || r.Verdict == Unknown:
			w.accept(r)
		case r.Verdict == Return && len(r.When) == 0:
			return false
		case r.Verdict == Jump:
			if w.walkJump(c, r) && len(r.When) == 0 {
				return true
			}
		}
	}
	return false
}

func (w *walk) accept(r Rule) {
	if r.Verdict == Accept && w.coversEndpoints(r) {
		w.result = accepted
	}
	w.result = max(w.result, perhaps)
}

func (w *walk) walkJump(from *Chain, r Rule) (ends bool) {
	if strings.HasPrefix(r.To, kubeChains) { // they go with kube-proxy, or belong to the kubelet
		w.kubeProxy = w.kubeProxy || r.To == "KUBE-FORWARD"
		if w.use.BesideAnother {
			w.result = max(w.result, perhaps)
		}
		return false
	}
	i := slices.IndexFunc(w.facts.Chains, func(c Chain) bool {
		return c.Family == from.Family && c.Table == from.Table && c.Name == r.To
	})
	if i < 0 {
		return false
	}
	if w.facts.Chains[i].Unread {
		w.result = max(w.result, perhaps)
		return false
	}
	inner := *w
	inner.result = dropped
	ends = inner.walkChain(&w.facts.Chains[i])
	if inner.result == accepted && !w.coversEndpoints(r) {
		inner.result = perhaps // it accepts what meets the condition of the jump
	}
	w.result, w.kubeProxy = max(w.result, inner.result), w.kubeProxy || inner.kubeProxy
	w.drops, w.end = inner.drops, inner.end
	return ends
}

func ruleText(c *Chain, i int) string { return fmt.Sprintf("rule %d of %s", i+1, ownedText(c)) }

// ownedText names a chain with the program that writes it.
func ownedText(c *Chain) string {
	if name := Program(c.Table, c.Name); name != "" {
		return c.String() + " (" + name + ")"
	}
	return c.String()
}

// findFilters returns what may drop forwarded connections to endpoints in a family: first what drops all that no rule accepts,
// then rules with a condition.
func findFilters(f *Facts, u Use, family model.Family) (out []string) {
	var under []string
	for i := range f.Chains {
		c := &f.Chains[i]
		if c.Type != "filter" || c.Hook != Forward || !c.seesFamily(family) {
			continue
		}
		w := walk{facts: f, use: u, family: family, seen: make(map[string]bool)}
		switch ends := w.walkChain(c); {
		case w.result == accepted:
		case ends:
			out = append(out, w.end)
		case c.Drops:
			out = append(out, "the policy of "+ownedText(c))
		}
		under = append(under, w.drops...)
	}
	for _, t := range f.Legacy {
		if t.ForwardDrops && strings.HasPrefix(t.Name, "ip6") == (family == model.IPv6) {
			out = append(out, "the policy of chain FORWARD of "+strings.Fields(t.Name)[0]+"tables-legacy")
		}
	}
	return append(out, under...)
}

// containerLinks are name prefixes of interfaces that lead to containers of engines, or
// to virtual machines, and not to pods.
var containerLinks = []string{"lo", "docker", "br-", "podman", "virbr", "lxcbr", "lxdbr"}

// excludesEndpoints reports whether a new connection to an endpoint does not meet the conditions.
func (w *walk) excludesEndpoints(r Rule) bool {
	return slices.ContainsFunc(r.When, func(c Condition) bool {
		switch c.Kind {
		case State:
			return c.States&stateNew == 0
		case Protocol:
			return !isTransport(c.Number)
		case Interface:
			return slices.ContainsFunc(containerLinks, func(p string) bool { return c.Name == p || p != "lo" && strings.HasPrefix(c.Name, p) })
		case Family:
			return c.Number != protocolNumber(w.family)
		case Source, Destination:
			pods := w.podRanges()
			return model.FamilyOf(c.Prefix.Addr()) != w.family || len(pods) > 0 && !slices.ContainsFunc(pods, c.Prefix.Overlaps)
		}
		return false
	})
}

// coversEndpoints reports whether all new connections to endpoints, which the rule does not
// exclude, meet the conditions.
func (w *walk) coversEndpoints(r Rule) bool {
	return !slices.ContainsFunc(r.When, func(c Condition) bool {
		switch c.Kind {
		case DNAT, State, Family:
			return false
		case Destination:
			pods := w.podRanges()
			return len(pods) == 0 || slices.ContainsFunc(pods, func(p netip.Prefix) bool {
				return !c.Prefix.Contains(p.Addr()) || c.Prefix.Bits() > p.Bits()
			})
		}
		return true
	})
}

func (w *walk) podRanges() (out []netip.Prefix) {
	for _, p := range w.use.PodRanges {
		if model.FamilyOf(p.Addr()) == w.family {
			out = append(out, p)
		}
	}
	return out
}

func protocolNumber(f model.Family) uint8 {
	if f == model.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

func (w *walk) newFinding(c *Chain) Finding {
	out := Finding{Level: Problem, Subject: w.family.String() + ", " + c.String(), Remedy: w.remedyFor(c),
		Message: w.use.Words.Sprintf("%s drops forwarded connections, and no rule accepts those to endpoints", c)}
	switch {
	case w.result == perhaps:
		out.Level = Warning
		out.Message = w.use.Words.Sprintf("%s drops forwarded connections that no rule accepts; whether its rules accept those to endpoints cannot be seen from here", c)
	case w.kubeProxy:
		out.Message = w.use.Words.Sprintf("%s drops forwarded connections, and only kube-proxy's chain KUBE-FORWARD accepts those to endpoints, which goes with kube-proxy", c)
	}
	return out
}

// remedyFor depends on the program that the chain belongs to.
func (w *walk) remedyFor(c *Chain) string {
	jumps := func(prefix string) bool {
		return slices.ContainsFunc(c.Rules, func(r Rule) bool { return strings.HasPrefix(r.To, prefix) })
	}
	command := "iptables"
	if c.Family == "ip6" {
		command = "ip6tables"
	}
	switch {
	case c.Table == "firewalld":
		return "put the pods' ranges in the zone trusted, and let a policy accept what goes there"
	case jumps("ufw"):
		return "ufw route allow to POD-RANGE"
	case jumps("DOCKER-USER"):
		return command + " -I DOCKER-USER -d POD-RANGE -j ACCEPT, and the same with -s"
	case c.Name == "FORWARD" && c.Table == "filter":
		return command + " -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT"
	}
	return fmt.Sprintf("nft insert rule %s %s %s ct status dnat accept, in the file that it comes from", c.Family, c.Table, c.Name)
}

func forwardLegacy(f *Facts, u Use) (out []Finding) {
	for _, t := range f.Legacy {
		family, of := "ip", model.IPv4
		if strings.HasPrefix(t.Name, "ip6") {
			family, of = "ip6", model.IPv6
		}
		if _, needed := u.findElsewhere(f, of); !t.ForwardDrops || !needed || !slices.Contains(u.servedFamilies(f), of) {
			continue
		}
		level, message := Problem, "drops forwarded connections, and has no rules that accept any"
		if t.ForwardAccept {
			level, message = Warning, "drops forwarded connections that no rule accepts; its rules were not read"
		}
		out = append(out, Finding{Level: level, Subject: family,
			Message: "chain FORWARD of " + family + "tables-legacy " + message,
			Remedy:  family + "tables-legacy -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT"})
	}
	return out
}

func natChains(f *Facts, u Use) (out []Finding) {
	for i := range f.Chains {
		c := &f.Chains[i]
		if c.Type != "nat" || c.Hook != Prerouting && c.Hook != Output || c.Priority > ourPriority || len(c.Rules) == 0 {
			continue
		}
		out = append(out, Finding{Level: Warning, Subject: c.String(),
			Message: u.Words.Sprintf("%s has priority %d and comes before nftproxy (%d): it decides about connections to Services that its rules match", c, c.Priority, ourPriority),
			Remedy:  u.Words.Text("give it priority dstnat or more, unless it leaves the addresses of Services alone")})
	}
	return out
}

// noTrack finds rules that exempt packets from connection tracking, and so from
// translation. NodeLocal DNSCache does that for its own addresses.
func noTrack(f *Facts, u Use) []Finding {
	var found []string
	for i := range f.Chains {
		c := &f.Chains[i]
		if slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.NoTrack }) {
			found = append(found, c.String())
		}
	}
	if len(found) == 0 || hasNodeLocalDNS(f) {
		return nil
	}
	return []Finding{{Level: Warning,
		Message: fmt.Sprintf("%s exempts packets from connection tracking: these are never translated", joinNames(found)),
		Remedy:  u.Words.Text("make sure that it does not match addresses of Services")}}
}

func flowTablesFound(f *Facts, u Use) []Finding {
	switch {
	case len(f.HardwareFlowTables) > 0:
		return []Finding{{Level: Warning,
			Message: u.Words.Sprintf("flow tables with hardware offload (%s) were not tried beside nftproxy: connections may stay with endpoints that are gone", joinNames(f.HardwareFlowTables)),
			Remedy:  u.Words.Text("remove the flag offload from them, or try whether datagrams move when their endpoint leaves")}}
	case len(f.FlowTables) > 0:
		return []Finding{{Level: OK, Documentation: pageFlowTables,
			Message: u.Words.Sprintf("connections in flow tables (%s) follow endpoints and lists of clients as others do", joinNames(f.FlowTables))}}
	}
	return nil
}

func fastPath(f *Facts, u Use) []Finding {
	if u.FastPath == nil {
		return nil
	}
	if err := u.FastPath.Err; err != nil {
		return []Finding{{Level: Warning, Message: fmt.Sprintf("--fast-path has no effect: %v", err), Remedy: "use another kernel, or leave the flag out"}}
	}
	message := "the kernel passes the test: established connections skip the rules of all programs"
	if u.ClosesTCP {
		message += u.Words.Text("; with --conntrack-tcp-cleanup, of TCP only those to Services with nftproxy.dev/on-failure: keep")
	}
	if len(f.FlowTables) > 0 {
		message += fmt.Sprintf("; connections that another flow table (%s) takes first stay there", joinNames(f.FlowTables))
	}
	if f.PolicyRules > 0 {
		message += fmt.Sprintf("; with %s of policy routing, one packet decides about the route of its connection (%s)",
			terminal.Count(f.PolicyRules, "rule"), pageFastPath+"#routes-that-depend-on-marks")
	}
	return []Finding{{Level: OK, Documentation: pageFastPath, Message: message}}
}
