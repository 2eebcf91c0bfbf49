package render

import (
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// NodePorts that are served on several addresses of the node are frontends with
// the unspecified address: one of each, however many addresses there are. The
// addresses are elements of one set, so that one that comes or goes is one
// change.
//
// The elements of these frontends are in the same sets and maps as all others,
// with the unspecified address in their keys. Only the rules differ that look
// them up: they mask the address of the packet. They come behind those for
// frontends with an address of their own, which win (4.37), and see packets to
// the addresses in the set alone. A ClusterIP serves no NodePorts even if an
// interface of the node has it, because its undefined ports are refused (4.23).

var (
	// dialledNode is the key of such a frontend where packets come in.
	dialledNode = nft.Concat{nft.AnyDestination, nft.TransportProtocol, nft.DestinationPort}
	// originalNode is the same behind DNAT.
	originalNode = nft.Concat{nft.AnyOriginalDestination, nft.TransportProtocol, nft.OriginalPort}
)

// dialledKey returns the key of a frontend, or of one with the unspecified
// address, where packets come in.
func dialledKey(wildcard bool) nft.Concat {
	if wildcard {
		return dialledNode
	}
	return dialled
}

const (
	nodeDispatchChain    = nft.NodePrefix + nft.DispatchChain
	nodePreroutingChain  = nft.NodePrefix + "prerouting"
	nodeRememberChain    = nft.NodePrefix + nft.RememberChain
	nodePostroutingChain = nft.NodePrefix + "postrouting"
)

// toDispatch ends a chain: what no frontend with the address of the packet serves
// goes on in a chain for NodePorts, if there is one.
func toDispatch(r *model.Routing, node string) []nft.Rule {
	if !r.Wildcards {
		return []nft.Rule{{nft.Verdict{Action: nft.Goto, Chain: nft.DispatchChain}}}
	}
	return []nft.Rule{{nft.Verdict{Action: nft.Jump, Chain: nft.DispatchChain}}, toNode(nft.DestinationAddress, node)}
}

// toNode goes on in a chain for NodePorts.
//
//	ip daddr @node-addresses ip daddr != @cluster-ips goto node-dispatch
func toNode(address nft.Field, chain string) nft.Rule {
	return nft.Rule{
		nft.InSet{Key: nft.Concat{address}, Set: nft.NodeAddressesSet},
		nft.InSet{Key: nft.Concat{address}, Set: nft.ClusterIPsSet, Not: true},
		nft.Verdict{Action: nft.Goto, Chain: chain},
	}
}

// nodeChains returns the counterparts of dispatch, prerouting and postrouting.
func nodeChains(f model.Family, r *model.Routing) []*nft.Chain {
	if !r.Wildcards {
		return nil
	}
	// ip saddr != 10.128.0.0/9 ip daddr & 0.0.0.0 . meta l4proto . th dport vmap @local-services
	local, _ := notFromPod(f, r)
	local = append(local, nft.VerdictMap{Key: dialledNode, Map: nft.LocalServicesMap})
	return []*nft.Chain{
		{Name: nodeDispatchChain, Rules: []nft.Rule{
			// ip daddr & 0.0.0.0 . meta l4proto . th dport vmap @services
			{nft.VerdictMap{Key: dialledNode, Map: nft.ServicesMap}},
		}},
		{Name: nodePreroutingChain, Rules: []nft.Rule{local, {nft.Verdict{Action: nft.Goto, Chain: nodeDispatchChain}}}},
		// A frontend with the address and port of a NodePort that got here has
		// policy Local: the others were masqueraded.
		{Name: nodePostroutingChain, Rules: append(leave(nft.LocalFrontendsSet), masqueradeExternal(originalNode)...)},
	}
}

// leave ends the hook for frontends with an address of their own that are in a
// set.
func leave(set string) []nft.Rule {
	var out []nft.Rule
	for _, p := range model.Protocols {
		// meta l4proto tcp ct original ip daddr . meta l4proto . ct original proto-dst @local-frontends accept
		out = append(out, nft.Rule{nft.ProtocolIs{Protocol: p}, nft.InSet{Key: original, Set: set}, nft.Verdict{Action: nft.Accept}})
	}
	return out
}

// nodeAffinityChains returns the counterparts of the chains that bind clients.
// They delete and drop what is not bound to an endpoint of the NodePort, so they
// must not see connections to other frontends.
func nodeAffinityChains(kinds []affinity) []*nft.Chain {
	remember := &nft.Chain{Name: nodeRememberChain, Rules: append(leave(nft.MasqFrontendsSet), leave(nft.LocalFrontendsSet)...)}
	out := []*nft.Chain{remember}
	for _, k := range kinds {
		// meta l4proto tcp ct original ip daddr & 0.0.0.0 . meta l4proto . ct original proto-dst @affinity-10800 goto node-bind-10800
		chain := nft.NodePrefix + k.chain()
		out = append(out, k.bind(chain, originalNode))
		remember.Rules = append(remember.Rules, k.find(originalNode, chain)...)
	}
	return append(out, recallChains(kinds, true)...)
}
