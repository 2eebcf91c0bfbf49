package render

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// A NodePort that is served on several addresses of the node is one frontend with the
// unspecified address. The addresses are elements of one set, so each added or removed
// address is one change.
//
// The elements of these frontends are in the same sets and maps as all others, with
// the unspecified address in their keys. Only the rules that look them up differ: they
// mask the address of the packet. They come behind those for frontends with a specific
// address, which win (4.37), and only see packets to the addresses in the set.
// A ClusterIP serves no NodePorts even if an interface of the node has it, because its
// undefined ports are refused (4.23).

var (
	// dialledNode is the key of such a frontend before DNAT.
	dialledNode = nft.Concat{nft.AnyDestination, nft.TransportProtocol, nft.DestinationPort}
	// originalNode is the same behind DNAT.
	originalNode = nft.Concat{nft.AnyOriginalDestination, nft.TransportProtocol, nft.OriginalPort}
)

// dialledKey returns the key of a frontend, or of one with the unspecified address,
// before DNAT.
func dialledKey(wildcard bool) nft.Concat {
	if wildcard {
		return dialledNode
	}
	return dialled
}

const (
	nodeDispatchChain    = nft.NodePrefix + nft.DispatchChain
	nodePreroutingChain  = nft.NodePrefix + "prerouting"
	nodeOutputChain      = nft.NodePrefix + "output"
	nodePostroutingChain = nft.NodePrefix + "postrouting"
)

// toDispatch ends a chain: packets that no frontend with their address and port serves
// continue in a chain for NodePorts, and then in one for ranges, if there are any, or with
// the rules behind these.
func toDispatch(r *model.Routing, o options, node, ranges string, behind []nft.Rule) []nft.Rule {
	if !r.Wildcards && !o.has(ranged) && len(behind) == 0 {
		return []nft.Rule{{nft.Verdict{Action: nft.Goto, Chain: nft.DispatchChain}}}
	}
	others := toOthers(r, o, nft.DestinationAddress, node, ranges, len(behind) > 0)
	return slices.Concat([]nft.Rule{{nft.Verdict{Action: nft.Jump, Chain: nft.DispatchChain}}}, others, behind)
}

// toOthers continues in the chains for NodePorts and for ranges. It comes back if there is
// more behind them.
func toOthers(r *model.Routing, o options, address nft.Field, node, ranges string, more bool) (rules []nft.Rule) {
	action := func(more bool) nft.Action {
		if more {
			return nft.Jump
		}
		return nft.Goto
	}
	if r.Wildcards {
		rules = append(rules, toNode(address, action(more || o.has(ranged)), node))
	}
	if o.has(ranged) {
		rules = append(rules, toRange(address, action(more), ranges))
	}
	return rules
}

// toNode continues in a chain for NodePorts.
//
//	ip daddr @node-addresses ip daddr != @cluster-ips goto node-dispatch
func toNode(address nft.Field, action nft.Action, chain string) nft.Rule {
	return nft.Rule{
		nft.InSet{Key: nft.Concat{address}, Set: nft.NodeAddressesSet},
		nft.InSet{Key: nft.Concat{address}, Set: nft.ClusterIPsSet, Not: true},
		nft.Verdict{Action: action, Chain: chain},
	}
}

// nodeChains returns the counterparts of dispatch, prerouting, output and postrouting.
// That of output exists only while it has a rule of its own.
func nodeChains(f model.Family, r *model.Routing, o options) []*nft.Chain {
	if !r.Wildcards {
		return nil
	}
	local, _ := notFromPod(f, r)
	local = append(local, classify(dialledNode, nft.LocalServicesMap)...)
	guards, dispatch := append(nodeFirewall(o), toLimits(dialledNode, o)...), nft.Rule{nft.Verdict{Action: nft.Goto, Chain: nodeDispatchChain}}
	var output []*nft.Chain
	if len(guards) > 0 {
		output = []*nft.Chain{{Name: nodeOutputChain, Rules: append(guards[:len(guards):len(guards)], dispatch)}}
	}
	masquerade := append(leave(original, nft.LocalFrontendsSet), masqueradeExternal(originalNode)...)
	if o.has(ranged) { // whose rules come behind
		masquerade = append(masquerade, leave(originalNode, nft.LocalFrontendsSet)...)
	}
	return append(output, []*nft.Chain{
		chooseOnNode(),
		{Name: nodeDispatchChain, Rules: []nft.Rule{classify(dialledNode, nft.ServicesMap)}},
		{Name: nodePreroutingChain, Rules: append(guards[:len(guards):len(guards)], local, dispatch)},
		// A frontend with the address and port of a NodePort has policy Local here:
		// the rules before masquerade the rest.
		{Name: nodePostroutingChain, Rules: masquerade},
	}...)
}

// chooseOnNode returns the counterpart of choose. A packet from the network whose
// destination is the unspecified address finds the element of a NodePort in dispatch.
func chooseOnNode() *nft.Chain {
	c := choose(nft.NodePrefix+nft.ChooseChain, dialledNode)
	c.Rules = append(offNode(), c.Rules...)
	return c
}

// offNode drops packets to addresses that serve no NodePorts. It is in the chains that
// translate connections to NodePorts, so that others do not pass it.
//
//	ip daddr != @node-addresses drop
func offNode() []nft.Rule {
	return []nft.Rule{{nft.InSet{Key: nft.Concat{nft.DestinationAddress}, Set: nft.NodeAddressesSet, Not: true}, nft.Verdict{Action: nft.Drop}}}
}

// leave ends the hook for frontends that are in a set.
func leave(frontend nft.Concat, set string) []nft.Rule {
	var out []nft.Rule
	for _, p := range model.Protocols {
		out = append(out, nft.Rule{nft.ProtocolIs{Protocol: p}, nft.InSet{Key: frontend, Set: set}, nft.Verdict{Action: nft.Accept}})
	}
	return out
}
