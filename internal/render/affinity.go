package render

import (
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
// With policy Local, clients outside of the cluster have a map and a set of their own: an
// endpoint that one of the two kinds of clients reaches may be none for the other.
//
// A lane jumps to a chain that notes the connection with the class of its frontend, and
// then looks up the binding of the client and translates the connection. Behind all DNAT,
// and before anything can translate the source, the class of a noted connection leads to
// the chain for its timeout. Connections that did not pass a lane with affinity are not
// noted: connections of other Services, and ones that another program has translated.
//
// The chain for a timeout compares the conntrack entry with affinity-endpoints. If the
// endpoint is there, the binding is added or renewed. If not, the binding is older than the
// removal of the endpoint: it is deleted and the packet dropped, so the client's next
// attempt is balanced. To spare clients that, the applier also deletes such bindings
// in the background.

// arrivalTime is how long a connection stays noted. Its first packet needs it for
// microseconds, unless a queue to user space delays the packet.
const arrivalTime = time.Second

// minArrivals is for how many connections there is room, whatever the number of clients that can be
// remembered: for 65,000 new ones in a second, because the kernel collects expired elements once a
// second (6.18), and they count until then. A client whose connection is not noted gets any endpoint.
const minArrivals = 1 << 17

// affinityOf returns the affinity of all clients, or of those outside of the cluster, which
// differ only with policy Local.
func affinityOf(r *model.Route, outside bool) nft.Affinity {
	if r.AffinityTimeout() == 0 {
		return nft.Affinity{}
	}
	return nft.Affinity{
		Timeout: r.AffinityTimeout(), Protocol: r.Frontend.Protocol, Local: outside,
		Shared: r.Service.BindsTogether(), Shape: nft.ShapeOf(r.Frontend),
	}
}

func affinitySets(bindings []string, capacity uint32) []*nft.Set {
	if len(bindings) == 0 {
		return nil
	}
	var out []*nft.Set
	for _, name := range bindings {
		out = append(out, declareDynamic(name, capacity, false))
	}
	for _, name := range bindings {
		out = append(out, nft.Declare(nft.EndpointsOf(name)), nft.Declare(nft.TimeoutsOf(name)))
	}
	if slices.Contains(bindings, nft.SharedAffinityMap) {
		out = append(out, declareSets(nft.GroupsMap, nft.ServersMap)...)
	}
	return append(out, declareDynamic(nft.ArrivalsMap, max(capacity, minArrivals), false), nft.Declare(nft.BindersMap))
}

// affinityChains returns the chains around those that bind clients. They see the first
// packet of each connection that leaves the node or ends at it.
//
//	meta l4proto tcp meta priority set ct original ip daddr . ct original ip saddr . ct original proto-src . ct original proto-dst map @affinity-arrivals meta priority vmap @binders
func affinityChains(r *model.Routing, bindings []string) []*nft.Chain {
	if len(bindings) == 0 {
		return nil
	}
	remember := &nft.Chain{Name: nft.RememberChain}
	for _, p := range model.Protocols {
		remember.Rules = append(remember.Rules, nft.Rule{
			nft.ProtocolIs{Protocol: p}, // nft requires it before "proto-dst"
			nft.Classify{Key: nft.Concat{nft.OriginalDestination, nft.OriginalSource, nft.OriginalClientPort, nft.OriginalPort}, Map: nft.ArrivalsMap},
			nft.VerdictMap{Key: nft.Concat{nft.PacketClass}, Map: nft.BindersMap},
		})
	}
	out := []*nft.Chain{remember}
	for _, name := range bindings {
		if name == nft.SharedAffinityMap {
			out = append(out, recallTogether(r.Observe))
			continue
		}
		out = append(out, recallChain(name, nft.OfPort, r.Observe))
		if r.Wildcards {
			out = append(out, recallChain(name, nft.OfNode, r.Observe))
		}
	}
	// early-postrouting leads there, too.
	return append(out, &nft.Chain{Name: "bind-input", Hook: nft.Input, Priority: nft.PriorityEarly, Rules: []nft.Rule{
		{nft.Verdict{Action: nft.Jump, Chain: nft.RememberChain}},
	}})
}

var noteArrival = nft.Note(nft.ArrivalsMap, nft.Concat{nft.DestinationAddress, nft.SourceAddress, nft.SourcePort, nft.DestinationPort}, arrivalTime)

// recallChain returns the chain that notes a connection, and translates it to the endpoint to
// which a map binds the client. It is one rule: a connection that cannot be noted must not
// get an endpoint that may have left.
//
//	meta priority set ip daddr . meta l4proto . th dport map @affinity-timeouts
//	  update @affinity-arrivals { ip daddr . ip saddr . th sport . th dport timeout 1s : meta priority }
//	  dnat ip to ip daddr . meta l4proto . th dport . ip saddr map @affinity
func recallChain(bindings string, s nft.Shape, observe model.Observe) *nft.Chain {
	frontend := dialled[s]
	var rules []nft.Rule
	if s == nft.OfNode {
		rules = offNode(observe)
	}
	return &nft.Chain{Name: nft.RecallChain(bindings, s), Rules: append(append(rules, toSample(observe)...), nft.Rule{
		nft.Classify{Key: frontend, Map: nft.TimeoutsOf(bindings)},
		noteArrival,
		nft.DNAT{Key: append(frontend[:3:3], nft.SourceAddress), Map: bindings},
	})}
}

// binderChain returns the chain that binds a client to the endpoint of its connection (5.3), or
// releases it.
//
//	meta priority set none
//	meta l4proto tcp ct original ... . ct reply ip saddr . ct reply proto-src @affinity-endpoints
//	  update @affinity { ct original ... . ct original ip saddr timeout 3h : ct reply ip saddr . ct reply proto-src } accept
//	meta l4proto tcp ct original ... @affinity-endpoints accept
//	meta l4proto tcp delete @affinity { ... } drop
func binderChain(a nft.Affinity, observe model.Observe) *nft.Chain {
	if a.Shared {
		return binderTogether(a, observe)
	}
	frontend := original[a.Shape]
	client := append(frontend[:3:3], nft.OriginalSource)
	protocol, accept := nft.ProtocolIs{Protocol: a.Protocol}, nft.Verdict{Action: nft.Accept}
	valid := nft.InSet{Key: append(frontend[:3:3], nft.ReplySource, nft.ReplyPort), Set: nft.EndpointsOf(a.Bindings())}
	return &nft.Chain{Name: a.Binder(), Rules: []nft.Rule{
		{nft.Declassify},
		{protocol, valid, nft.Remember(a.Bindings(), client, a.Timeout), accept},
		// The map is full: the client is still served.
		{protocol, valid, accept},
		{protocol, nft.Forget(a.Bindings(), client), refusalVerdict(observe, model.AffinityReleased, nft.OfPort)},
	}}
}

// addAffinity adds what some clients of a frontend need to stay with their endpoint. The numbers of
// servers are left out.
func (c *composer) addAffinity(f model.Frontend, a nft.Affinity, endpoints []netip.AddrPort) {
	c.useOption(option{kind: sticky, bindings: a.Bindings()})
	c.part.lanes = append(c.part.lanes, laneUse{binds: a})
	c.add(nft.TimeoutsOf(a.Bindings()), nft.Element{Key: nft.FrontendKey(f), Value: nft.Value{Class: a.Class()}})
	if a.Shared {
		return
	}
	for _, e := range sortDistinct(endpoints) {
		c.add(nft.EndpointsOf(a.Bindings()), nft.Element{Key: nft.EndpointKey(f, e)})
	}
}

func sortDistinct(endpoints []netip.AddrPort) []netip.AddrPort {
	endpoints = slices.Clone(endpoints)
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	return slices.Compact(endpoints)
}

// A Balance with several ports binds a client together: to one server for all of them. The
// frontends of such a Balance at an address are a group, and a binding is the number of the
// server in the group, from which each frontend leads to the port that the server has there.
//
// A binding whose server a frontend does not have at present leads nowhere there: the packet deletes
// it, the lane chooses, and the choice becomes the binding for all ports. So no connection gets
// a server that has left, and none is lost.

// recallTogether returns the chain that notes a connection, and translates it to the server to
// which the client is bound, in one rule like that of recall. A second one deletes a binding that leads
// nowhere, because the kernel only restarts the timeout of one that is there.
//
//	meta priority set ip daddr . meta l4proto . th dport map @shared-affinity-timeouts
//	  update @affinity-arrivals { ip daddr . ip saddr . th sport . th dport timeout 1s : meta priority }
//	  meta priority set ip daddr . meta l4proto . th dport map @shared-affinity-groups
//	  meta priority set ip daddr . meta priority . ip saddr map @shared-affinity
//	  dnat ip to ip daddr . meta priority . meta l4proto . th dport map @shared-affinity-servers
//	meta priority set ip daddr . meta l4proto . th dport map @shared-affinity-groups
//	  delete @shared-affinity { ip daddr . meta priority . ip saddr : meta priority }
func recallTogether(observe model.Observe) *nft.Chain {
	frontend := dialled[nft.OfPort]
	group := nft.Classify{Key: frontend, Map: nft.GroupsMap}
	client := nft.Concat{nft.DestinationAddress, nft.PacketClass, nft.SourceAddress}
	return &nft.Chain{Name: nft.RecallChain(nft.SharedAffinityMap, nft.OfPort), Rules: append(toSample(observe), nft.Rule{
		nft.Classify{Key: frontend, Map: nft.TimeoutsOf(nft.SharedAffinityMap)},
		noteArrival,
		group,
		nft.Classify{Key: client, Map: nft.SharedAffinityMap},
		nft.DNAT{Key: nft.Concat{nft.DestinationAddress, nft.PacketClass, nft.TransportProtocol, nft.DestinationPort}, Map: nft.ServersMap},
	}, nft.Rule{group, nft.Forget(nft.SharedAffinityMap, client)})}
}

// binderTogether returns the chain that binds a client to the server of its connection. A server
// that has left is no longer found, and the packet is dropped: the next one is balanced.
//
//	meta l4proto tcp meta priority set ct original ... . ct reply ip saddr . ct reply proto-src map @shared-affinity-endpoints
//	  update @shared-affinity { ct original ip daddr . meta priority & ffff:c000 . ct original ip saddr timeout 10m : meta priority }
//	  meta priority set none accept
func binderTogether(a nft.Affinity, observe model.Observe) *nft.Chain {
	protocol, accept := nft.ProtocolIs{Protocol: a.Protocol}, nft.Verdict{Action: nft.Accept}
	server := nft.Classify{
		Key: append(original[nft.OfPort][:3:3], nft.ReplySource, nft.ReplyPort), Map: nft.EndpointsOf(nft.SharedAffinityMap),
	}
	client := nft.Concat{nft.OriginalDestination, nft.PacketGroup, nft.OriginalSource}
	return &nft.Chain{Name: a.Binder(), Rules: []nft.Rule{
		{protocol, server, nft.Note(nft.SharedAffinityMap, client, a.Timeout), nft.Declassify, accept},
		// The map is full: the client is still served.
		{protocol, server, nft.Declassify, accept},
		{protocol, nft.Declassify, refusalVerdict(observe, model.AffinityReleased, nft.OfPort)},
	}}
}

func (c *composer) bindTogether(r *model.Route, endpoints []netip.AddrPort) {
	f, group := r.Frontend, nft.GroupOf(r.Service.Ports)
	c.add(nft.GroupsMap, nft.Element{Key: nft.FrontendKey(f), Value: nft.Value{Class: group}})
	for _, e := range sortDistinct(endpoints) {
		number := r.Choice.Numbers[e]
		server := group.Server(number)
		c.add(nft.EndpointsOf(nft.SharedAffinityMap), nft.Element{Key: nft.EndpointKey(f, e), Value: nft.Value{Class: server}})
		if number == 0 { // a binding to it leads nowhere
			continue
		}
		key := nft.FrontendKey(f)
		key.Slot = uint32(server)
		c.add(nft.ServersMap, nft.Element{Key: key, Value: nft.Value{Endpoint: e}})
	}
}

func (c *composer) keepTogether(k *KeptFrontend) {
	for i := range k.Elements {
		if e := &k.Elements[i]; e.Set == nft.ServersMap {
			server := nft.Value{Class: nft.Class(e.Key.Slot)}
			c.add(nft.EndpointsOf(nft.SharedAffinityMap), nft.Element{Key: nft.EndpointKey(k.Frontend, e.Value.Endpoint), Value: server})
		}
	}
}
