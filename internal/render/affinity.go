package render

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Session affinity binds a client to an endpoint of a frontend. Packets write the
// bindings, and changes do not read them: a binding is valid only while the endpoint
// is in affinity-endpoints, an ordinary set.
//
// A lane jumps to a chain that looks up the binding of a client and translates the
// connection. Behind all DNAT, and before anything can translate the source, the
// chains below compare the conntrack entry with affinity-endpoints. If the endpoint
// is there, the binding is added or renewed. If not, the binding is older than the
// removal of the endpoint: it is deleted and the packet dropped, so the client's next
// attempt is balanced. To spare clients that, the applier also deletes such bindings
// in the background.

// affinity is the kind of session affinity of a frontend. It is comparable; the zero
// value is none.
type affinity struct {
	timeout time.Duration
	// local frontends have policy Local. Their clients outside of the cluster may
	// reach only endpoints of this node, so bindings from before a change of policy
	// must not count for them.
	local bool
}

func affinityOf(r *model.Route) affinity {
	if r.AffinityTimeout() == 0 {
		return affinity{}
	}
	return affinity{r.AffinityTimeout(), r.Local()}
}

func (a affinity) compare(o affinity) int {
	return cmp.Or(cmp.Compare(a.prefix(), o.prefix()), cmp.Compare(a.timeout, o.timeout))
}

// prefix distinguishes the names for frontends with policy Local.
func (a affinity) prefix() string {
	if a.local {
		return "local-"
	}
	return ""
}

func (a affinity) bindings() string { return a.prefix() + nft.AffinityMap }

func (a affinity) frontends() string {
	return fmt.Sprintf("%saffinity-%d", a.prefix(), int(a.timeout.Seconds()))
}

func (a affinity) chain() string {
	return fmt.Sprintf("%sbind-%d", a.prefix(), int(a.timeout.Seconds()))
}

// affinitySets returns the empty sets and maps for sorted kinds of affinity.
func affinitySets(kinds []affinity, capacity uint32) []*nft.Set {
	if len(kinds) == 0 {
		return nil
	}
	var out []*nft.Set
	for _, k := range kinds {
		if !slices.ContainsFunc(out, func(s *nft.Set) bool { return s.Name == k.bindings() }) {
			out = append(out, &nft.Set{
				Name: k.bindings(), Key: append(frontend[:3:3], nft.Source), Data: []nft.Datatype{nft.Address, nft.Port},
				Dynamic: true, Size: capacity,
			})
		}
	}
	out = append(out, &nft.Set{Name: nft.AffinityEndpointsSet, Key: append(frontend[:3:3], nft.EndpointAddress, nft.EndpointPort)})
	for _, k := range kinds {
		out = append(out, &nft.Set{Name: k.frontends(), Key: frontend})
	}
	return out
}

// affinityChains returns the chains that bind clients. They see the first packet of
// each connection that leaves the node or ends at it.
func affinityChains(r *model.Routing, kinds []affinity) []*nft.Chain {
	if len(kinds) == 0 {
		return nil
	}
	remember := &nft.Chain{Name: nft.RememberChain}
	out := []*nft.Chain{remember}
	for _, k := range kinds {
		out = append(out, k.bind(k.chain(), original))
		remember.Rules = append(remember.Rules, k.find(original, k.chain())...)
	}
	if r.Wildcards {
		remember.Rules = append(remember.Rules, toNode(nft.OriginalDestination, nft.Goto, nodeRememberChain))
		out = append(out, nodeAffinityChains(kinds)...)
	}
	out = append(out, recallChains(kinds, false)...)
	for _, hook := range []nft.Hook{nft.Input, nft.Postrouting} {
		out = append(out, &nft.Chain{Name: "bind-" + hook.String(), Hook: hook, Priority: nft.PriorityBind, Rules: []nft.Rule{
			{nft.Verdict{Action: nft.Jump, Chain: nft.RememberChain}},
		}})
	}
	return out
}

// recallChains returns one such chain for each map of sorted kinds.
func recallChains(kinds []affinity, wildcard bool) (out []*nft.Chain) {
	for i, k := range kinds {
		if i > 0 && kinds[i-1].local == k.local {
			continue
		}
		out = append(out, &nft.Chain{Name: nft.RecallChain(k.bindings(), wildcard), Rules: []nft.Rule{
			{nft.DNAT{Key: append(dialledKey(wildcard)[:3:3], nft.SourceAddress), Map: k.bindings()}},
		}})
	}
	return out
}

// find returns the rules that match the frontends with this affinity.
//
//	meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst @affinity-10800 goto bind-10800
func (a affinity) find(frontend nft.Concat, chain string) []nft.Rule {
	var out []nft.Rule
	for _, p := range model.Protocols {
		out = append(out, nft.Rule{
			nft.ProtocolIs{Protocol: p}, // nft requires it before "proto-dst"
			nft.InSet{Key: frontend, Set: a.frontends()},
			nft.Verdict{Action: nft.Goto, Chain: chain},
		})
	}
	return out
}

// bind returns the chain that binds a client to the endpoint of its connection
// (5.3), or releases it.
//
//	meta l4proto tcp ct original ... . ct reply ip saddr . ct reply proto-src @affinity-endpoints
//	  update @affinity { ct original ... . ct original ip saddr timeout 3h : ct reply ip saddr . ct reply proto-src } accept
//	meta l4proto tcp ct original ... @affinity-endpoints accept
//	meta l4proto tcp delete @affinity { ... } drop
func (a affinity) bind(name string, frontend nft.Concat) *nft.Chain {
	pair := append(frontend[:3:3], nft.ReplySource, nft.ReplyPort)
	client := append(frontend[:3:3], nft.OriginalSource)
	c := &nft.Chain{Name: name}
	for _, p := range model.Protocols {
		valid := nft.Rule{nft.ProtocolIs{Protocol: p}, nft.InSet{Key: pair, Set: nft.AffinityEndpointsSet}}
		c.Rules = append(c.Rules,
			append(valid[:2:2], nft.Remember{Map: a.bindings(), Key: client, Timeout: a.timeout}, nft.Verdict{Action: nft.Accept}),
			// The map is full: the client is still served.
			append(valid[:2:2], nft.Verdict{Action: nft.Accept}),
			nft.Rule{nft.ProtocolIs{Protocol: p}, nft.Forget{Map: a.bindings(), Key: client}, nft.Verdict{Action: nft.Drop}})
	}
	return c
}

func (c *composer) affinityEndpoints(f model.Frontend, l layout) {
	endpoints := slices.Concat(l.slots, l.own)
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	for _, e := range slices.Compact(endpoints) {
		c.add(nft.AffinityEndpointsSet, nft.Element{Key: nft.EndpointKey(f, e)})
	}
}
