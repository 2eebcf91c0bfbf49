package preflight

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// feature is something that rules need and that a kernel can lack. If the families
// have separate remedies, it has the one of IPv4.
type feature struct {
	name   string
	remedy Remedy
}

var (
	setModule = Remedy{Module: "nf_tables_set", Option: "NF_TABLES_SET"}

	tables             = feature{"tables and chains", Remedy{Module: "nf_tables", Option: "NF_TABLES_IPV4"}}
	natChains          = feature{"NAT chains", Remedy{Module: "nft_chain_nat", Option: "NFT_NAT"}}
	ranges             = feature{"sets of ranges", setModule}
	concatenatedRanges = feature{"sets of concatenated ranges", Remedy{Since: "5.6"}}
	verdictMaps        = feature{"verdict maps", setModule}
	dynamicMaps        = feature{"maps that packets fill", setModule}
	rateLimits         = feature{"connection rate limits", Remedy{Module: "nft_limit", Option: "NFT_LIMIT", Since: "5.7"}}
	connectionLimits   = feature{"connection limits", Remedy{Module: "nft_connlimit", Option: "NFT_CONNLIMIT", Since: "5.7"}}
	refusals           = feature{"counters and logs of refused connections", Remedy{Module: "nft_log and nfnetlink_log", Option: "NFT_LOG and CONFIG_NETFILTER_NETLINK_LOG", Since: "5.11"}}
	redirects          = feature{"redirecting to this machine", Remedy{Module: "nft_redir", Option: "NFT_REDIR"}}
	counters           = feature{"counters of set elements", Remedy{Module: "nft_counter", Option: "NFT_COUNTER", Since: "5.7"}}
)

// byExpression has the expressions that are separate modules. The others are part of
// nf_tables.
var byExpression = map[string]feature{
	"ct":     {"matches on connections", Remedy{Module: "nft_ct", Option: "NFT_CT", Since: "4.17"}},
	"nat":    {"destination NAT", Remedy{Module: "nft_nat", Option: "NFT_NAT"}},
	"masq":   {"masquerading", Remedy{Module: "nft_masq", Option: "NFT_MASQ"}},
	"redir":  redirects,
	"reject": {"rejecting", Remedy{Module: "nft_reject_ipv4", Option: "NFT_REJECT_IPV4"}},
	"numgen": {"round robin and random numbers", Remedy{Module: "nft_numgen", Option: "NFT_NUMGEN"}},
	"hash":   {"hashes of addresses", Remedy{Module: "nft_hash", Option: "NFT_HASH"}},
	"fib":    {"matches on addresses of the node", Remedy{Module: "nft_fib_ipv4", Option: "NFT_FIB_IPV4"}},
}

func missingOf(f model.Family, refused []kernel.Refusal) []Problem {
	m := missing{family: f}
	for _, r := range refused {
		if r.Data[0] != codec.FamilyNumber(f) {
			continue
		}
		m.add(r)
		if r.Type == unix.NFT_MSG_NEWTABLE {
			break // the rest follows from that
		}
	}
	return m.problems
}

type missing struct {
	family   model.Family
	problems []Problem
}

// add adds the problem behind a refused message. If every kernel with nf_tables has
// the feature, the cause is something that the message refers to, refused before.
func (m *missing) add(r kernel.Refusal) {
	f, ok := featureOf(r)
	if !ok && len(m.problems) > 0 {
		return
	}
	keyword := nft.FamilyKeyword(m.family)
	p := Problem{Feature: fmt.Sprintf("%s (%s)", f.name, keyword), Answer: r.Err, Limits: f == rateLimits || f == connectionLimits, Observe: f == refusals, Relay: f == redirects, Remedy: f.remedy}
	if m.family == model.IPv6 {
		own := strings.NewReplacer("ipv4", "ipv6", "IPV4", "IPV6")
		p.Module, p.Option = own.Replace(p.Module), own.Replace(p.Option)
	}
	if !slices.ContainsFunc(m.problems, func(o Problem) bool { return o.Feature == p.Feature }) {
		m.problems = append(m.problems, p)
	}
}

// featureOf returns the feature that a refused message needs, and whether a kernel with
// nf_tables can lack it.
func featureOf(r kernel.Refusal) (feature, bool) {
	switch r.Type {
	case unix.NFT_MSG_NEWTABLE:
		return tables, true
	case unix.NFT_MSG_NEWCHAIN:
		if r.Chain.Hook != nft.NoHook {
			return natChains, true
		}
		return tables, false
	case unix.NFT_MSG_NEWSET:
		return setFeature(r.Set)
	case unix.NFT_MSG_NEWRULE:
		// Old kernels answer without the expression that they do not know.
		if _, _, refuses := nft.ReasonOf(r.Chain.Name); refuses && r.Expression != "ct" && r.Expression != "reject" {
			return refusals, true
		}
		if f, ok := byExpression[r.Expression]; ok {
			return f, true
		}
	}
	return feature{r.String(), tables.remedy}, false
}

func setFeature(s *nft.Set) (feature, bool) {
	switch {
	case s.Limits == nft.RateLimits:
		return rateLimits, true
	case s.Limits == nft.ConnectionLimits:
		return connectionLimits, true
	case s.Counters:
		return counters, true
	case s.Interval && s.Concat():
		return concatenatedRanges, true
	case s.Interval:
		return ranges, true
	case s.Dynamic:
		return dynamicMaps, true
	case slices.Contains(s.Data, nft.Verdicts):
		return verdictMaps, true
	}
	return feature{"sets", setModule}, false
}

// probeAll returns rules that have every feature that Services and the configuration can need, in
// a table for each family. The kernel tries all of them in one transaction: to undo one, it
// waits until no processor can still see it, for some milliseconds.
func probeAll(families []model.Family, use Use) *nft.Ruleset {
	out := &nft.Ruleset{}
	for _, f := range families {
		t := &nft.Table{Family: f}
		for _, rules := range probesFor(f, use) {
			join(t, rules.Tables[0])
		}
		out.Tables = append(out.Tables, t)
	}
	return out
}

// join adds the sets and chains that a table lacks. A chain with other rules than the one of
// its name gets another name.
func join(to, from *nft.Table) {
	for _, s := range from.Sets {
		if !slices.ContainsFunc(to.Sets, func(o *nft.Set) bool { return o.Name == s.Name }) {
			to.Sets = append(to.Sets, s)
		}
	}
	for _, c := range from.Chains {
		i := slices.IndexFunc(to.Chains, func(o *nft.Chain) bool { return o.Name == c.Name })
		switch {
		case i < 0:
			to.Chains = append(to.Chains, c)
		case !reflect.DeepEqual(to.Chains[i], c):
			other := *c
			other.Name += "-2"
			to.Chains = append(to.Chains, &other)
		}
	}
}

// probesFor returns rulesets of a family that together have every feature.
func probesFor(f model.Family, use Use) []*nft.Ruleset {
	all, some := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("192.0.2.0/24")
	if f == model.IPv6 {
		all, some = netip.MustParsePrefix("::/0"), netip.MustParsePrefix("2001:db8::/120")
	}
	rate := model.Rate{Amount: 10, Burst: 10}
	limits := model.Limits{Connections: 10, ConnectionsPerClient: 10, Rate: rate, RatePerClient: rate}
	address := some.Addr().Next()
	s := &model.Snapshot{
		Nodes:        []*model.Node{{Name: "node", Addresses: []netip.Addr{address}}},
		ServiceCIDRs: []netip.Prefix{some},
	}
	for i, scheduler := range []model.Scheduler{model.RoundRobin, model.Random, model.SourceHash, model.MaglevPort} {
		address = address.Next()
		name := model.ServiceName{Namespace: "preflight", Name: scheduler.String()}
		s.Services = append(s.Services, &model.Service{
			Name: name, Scheduler: scheduler, ExternalPolicy: model.PolicyLocal, AffinityTimeout: time.Hour,
			ClusterIPs: []netip.Addr{address}, External: &model.External{SourceRanges: []netip.Prefix{some}},
			Extras: &model.Extras{Limits: limits, MaglevSize: model.MaglevSizes[0]},
			Ports:  []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: uint16(30080 + i)}},
		})
		s.Slices = append(s.Slices, &model.EndpointSlice{
			Namespace: name.Namespace, Name: name.Name, Service: name.Name, Family: f,
			Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}},
			Hosts: []model.Host{
				{Address: some.Addr(), Ready: true, Serving: true, Place: model.OnNode("node")},
				{Address: address, Ready: true, Serving: true, Place: model.OnNode("node")},
			},
		})
	}
	if use.Relay {
		relayed := *s.Services[0]
		relayed.Name.Name, relayed.ClusterIPs = "relay", []netip.Addr{address.Next()}
		relayed.Ports, relayed.Extras = []model.ServicePort{{Protocol: model.TCP, Port: 80}}, &model.Extras{Relay: model.PlainRelay}
		slice := *s.Slices[0]
		slice.Name, slice.Service = relayed.Name.Name, relayed.Name.Name
		s.Services, s.Slices = append(s.Services, &relayed), append(s.Slices, &slice)
	}
	var out []*nft.Ruleset
	for i, c := range []model.Config{
		{ClusterCIDRs: []netip.Prefix{some}},
		{DetectLocal: model.DetectInterfaceNamePrefix, PodInterface: "pod", NodePortAddresses: []netip.Prefix{all}, MasqueradeFrom: []netip.Addr{some.Addr(), some.Addr().Next()}},
	} {
		c.NodeName, c.Families, c.Counters, c.EndpointCounters = "node", []model.Family{f}, true, true
		c.AnswerPing, c.LoadBalancerCIDRs = true, []netip.Prefix{some}
		if use.Observe {
			level := []model.ObserveLevel{model.ObserveServed, model.ObserveFailures}[i] // each has a statement that the other lacks
			c.Observe = model.Observe{Level: level, Group: model.DefaultObserveGroup, Untracked: true}
		}
		out = append(out, separateFeatures(render.Render(model.Resolve(s, c))))
	}
	return out
}

// separateFeatures returns a ruleset that separates features that a kernel can refuse: hooks are in chains
// without rules, and counters in maps that no rule refers to.
func separateFeatures(rules *nft.Ruleset) *nft.Ruleset {
	out := &nft.Ruleset{}
	for _, t := range rules.Tables {
		parts := &nft.Table{Family: t.Family}
		for _, s := range t.Sets {
			plain := *s
			plain.Counters = false
			parts.Sets = append(parts.Sets, &plain)
			if s.Counters {
				parts.Sets = append(parts.Sets, &nft.Set{Name: s.Name + "-counters", Key: s.Key, Data: s.Data, Counters: true})
			}
		}
		for _, c := range t.Chains {
			parts.Chains = append(parts.Chains, &nft.Chain{Name: c.Name, Rules: c.Rules})
			if c.Hook != nft.NoHook {
				parts.Chains = append(parts.Chains, &nft.Chain{Name: c.Name + "-hook", Hook: c.Hook, Filter: c.Filter, Priority: c.Priority})
			}
		}
		out.Tables = append(out.Tables, parts)
	}
	return out
}
