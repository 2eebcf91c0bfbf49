package preflight

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

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
