package render

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

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
	}, nft.Rule{group, nft.Forget{Map: nft.SharedAffinityMap, Key: client}})}
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
		{protocol, server, nft.Note{Map: nft.SharedAffinityMap, Key: client, Timeout: a.Timeout}, nft.Declassify{}, accept},
		// The map is full: the client is still served.
		{protocol, server, nft.Declassify{}, accept},
		{protocol, nft.Declassify{}, refusalVerdict(observe, model.AffinityReleased, nft.OfPort)},
	}}
}

// bindTogether adds the group of a frontend, and its endpoints by the numbers of their servers.
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

// keepTogether adds the servers of a frontend that is kept, whose group and endpoints by number it has.
func (c *composer) keepTogether(k *KeptFrontend) {
	for i := range k.Elements {
		if e := &k.Elements[i]; e.Set == nft.ServersMap {
			server := nft.Value{Class: nft.Class(e.Key.Slot)}
			c.add(nft.EndpointsOf(nft.SharedAffinityMap), nft.Element{Key: nft.EndpointKey(k.Frontend, e.Value.Endpoint), Value: server})
		}
	}
}
