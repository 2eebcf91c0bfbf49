package render

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Session affinity binds a client to an endpoint of a frontend. Packets write the
// bindings, and nothing on the path of a change reads them: a binding is valid
// only while the endpoint is in affinity-endpoints, a set like every other one.
//
// A lane jumps to a chain that finds the binding of a client and translates the
// connection. Behind all DNAT, and before anything else can translate the source, the
// chains below compare what connection tracking says with affinity-endpoints. If the
// endpoint is there, the binding is made, or lives on. If not, the binding was made
// before the endpoint left: it is deleted and the packet dropped, so that the client's
// next attempt is balanced. The applier deletes such bindings in the background too,
// to spare clients that attempt.

// affinity is the kind of session affinity that a frontend has. It is comparable;
// the zero value is none.
type affinity struct {
	timeout time.Duration
	// local frontends have policy Local. Their clients outside of the cluster
	// may reach endpoints of this node only, so bindings from a time with
	// another policy must not count for them.
	local bool
}

// affinityOf returns the affinity of the frontend of a route.
func affinityOf(r *model.Route) affinity {
	if r.Service.AffinityTimeout == 0 {
		return affinity{}
	}
	return affinity{r.Service.AffinityTimeout, r.Local()}
}

func (a affinity) compare(o affinity) int {
	return cmp.Or(cmp.Compare(a.prefix(), o.prefix()), cmp.Compare(a.timeout, o.timeout))
}

// prefix distinguishes names that exist for frontends with policy Local as well.
func (a affinity) prefix() string {
	if a.local {
		return "local-"
	}
	return ""
}

// bindings names the map of clients.
func (a affinity) bindings() string { return a.prefix() + AffinityMap }

// frontends names the set of frontends with this affinity.
func (a affinity) frontends() string {
	return fmt.Sprintf("%saffinity-%d", a.prefix(), int(a.timeout.Seconds()))
}

// chain names the chain that binds the clients of these frontends.
func (a affinity) chain() string {
	return fmt.Sprintf("%sbind-%d", a.prefix(), int(a.timeout.Seconds()))
}

// affinitySets returns the sets and maps for the kinds of affinity in use, which
// are sorted, empty.
func affinitySets(kinds []affinity, capacity uint32) []*Set {
	if len(kinds) == 0 {
		return nil
	}
	var out []*Set
	for _, k := range kinds {
		if !slices.ContainsFunc(out, func(s *Set) bool { return s.Name == k.bindings() }) {
			out = append(out, &Set{
				Name: k.bindings(), Key: append(frontend[:3:3], Source), Data: []Datatype{Address, Port},
				Dynamic: true, Size: capacity,
			})
		}
	}
	out = append(out, &Set{Name: AffinityEndpointsSet, Key: append(frontend[:3:3], EndpointAddress, EndpointPort)})
	for _, k := range kinds {
		out = append(out, &Set{Name: k.frontends(), Key: frontend})
	}
	return out
}

// affinityChains returns the chains that bind clients. They see the first packet
// of each connection that leaves the node or ends at it.
func affinityChains(r *model.Routing, kinds []affinity) []*Chain {
	if len(kinds) == 0 {
		return nil
	}
	remember := &Chain{Name: rememberChain}
	out := []*Chain{remember}
	for _, k := range kinds {
		// meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst @affinity-10800 goto bind-10800
		out = append(out, k.bind(k.chain(), original))
		remember.Rules = append(remember.Rules, k.find(original, k.chain())...)
	}
	if r.Wildcards {
		remember.Rules = append(remember.Rules, toNode(OriginalDestination, nodeRememberChain))
		out = append(out, nodeAffinityChains(kinds)...)
	}
	out = append(out, recallChains(kinds, false)...)
	for _, hook := range []Hook{Input, Postrouting} {
		out = append(out, &Chain{Name: "bind-" + hook.String(), Hook: hook, Priority: PriorityBind, Rules: []Rule{
			{Verdict{Jump, rememberChain}},
		}})
	}
	return out
}

// recallChains returns one such chain for each map of the kinds, which are sorted.
func recallChains(kinds []affinity, wildcard bool) (out []*Chain) {
	for i, k := range kinds {
		if i > 0 && kinds[i-1].local == k.local {
			continue
		}
		out = append(out, &Chain{Name: recallChain(k.bindings(), wildcard), Rules: []Rule{
			// dnat ip to ip daddr . meta l4proto . th dport . ip saddr map @affinity
			{DNAT{Key: append(dialledKey(wildcard)[:3:3], SourceAddress), Map: k.bindings()}},
		}})
	}
	return out
}

// find returns the rules that recognise the frontends with this affinity.
func (a affinity) find(frontend Concat, chain string) []Rule {
	var out []Rule
	for _, p := range model.Protocols {
		out = append(out, Rule{
			ProtocolIs{p}, // nft wants to know it before it takes "proto-dst"
			InSet{Key: frontend, Set: a.frontends()},
			Verdict{Goto, chain},
		})
	}
	return out
}

// bind returns the chain that binds a client to the endpoint that its connection
// got (5.3), or releases it.
func (a affinity) bind(name string, frontend Concat) *Chain {
	pair := append(frontend[:3:3], ReplySource, ReplyPort)
	client := append(frontend[:3:3], OriginalSource)
	c := &Chain{Name: name}
	for _, p := range model.Protocols {
		valid := Rule{ProtocolIs{p}, InSet{Key: pair, Set: AffinityEndpointsSet}}
		c.Rules = append(c.Rules,
			// meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst . ct reply ip saddr . ct reply proto-src @affinity-endpoints
			//   update @affinity { ct original ip daddr . meta l4proto . ct original proto-dst . ct original ip saddr timeout 3h : ct reply ip saddr . ct reply proto-src } accept
			append(valid[:2:2], Remember{Map: a.bindings(), Key: client, Timeout: a.timeout}, Verdict{Action: Accept}),
			// The map is full: the client is served all the same.
			// meta l4proto tcp ... @affinity-endpoints accept
			append(valid[:2:2], Verdict{Action: Accept}),
			// meta l4proto tcp delete @affinity { ... } drop
			Rule{ProtocolIs{p}, Forget{Map: a.bindings(), Key: client}, Verdict{Action: Drop}})
	}
	return c
}

// affinityEndpoints adds the endpoints to which clients of a frontend may be
// bound.
func (c *composer) affinityEndpoints(f model.Frontend, slots []netip.AddrPort) {
	endpoints := slices.Clone(slots)
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	for _, e := range slices.Compact(endpoints) {
		c.add(AffinityEndpointsSet, Element{Key: endpointKey(f, e)})
	}
}
