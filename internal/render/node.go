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

// Names of chains of all shapes.
const (
	preroutingChain  = "prerouting"
	outputChain      = "output"
	postroutingChain = "postrouting"
)

// toDispatch ends a chain: packets that no frontend with their address and port serves
// continue in a chain for NodePorts, and then in one for ranges, if there are any, or with
// the rules behind these.
func toDispatch(r *model.Routing, o options, chain string, behind []nft.Rule) []nft.Rule {
	if !r.Wildcards && !o.hasKind(ranged) && len(behind) == 0 {
		return []nft.Rule{{nft.Verdict{Action: nft.Goto, Chain: nft.DispatchChain}}}
	}
	others := toOthers(r, o, nft.DestinationAddress, chain, len(behind) > 0)
	return slices.Concat([]nft.Rule{{nft.Verdict{Action: nft.Jump, Chain: nft.DispatchChain}}}, others, behind)
}

// toOthers continues in the counterparts of a chain for NodePorts and for ranges. It comes
// back if there is more behind them.
//
//	ip daddr @node-addresses ip daddr != @cluster-ips goto node-dispatch
//	ip daddr @range-addresses goto range-prerouting
func toOthers(r *model.Routing, o options, address nft.Field, chain string, more bool) (rules []nft.Rule) {
	verdict := func(s nft.Shape, chain string, more bool) nft.Verdict {
		if more {
			return nft.Verdict{Action: nft.Jump, Chain: s.Chain(chain)}
		}
		return nft.Verdict{Action: nft.Goto, Chain: s.Chain(chain)}
	}
	if r.Wildcards {
		own := chain
		if chain == outputChain && len(guardRules(nft.OfNode, r.Observe, o)) == 0 {
			own = nft.DispatchChain
		}
		rules = append(rules, nft.Rule{
			nft.InSet{Key: nft.Concat{address}, Set: nft.NodeAddressesSet},
			nft.InSet{Key: nft.Concat{address}, Set: nft.ClusterIPsSet, Not: true}, verdict(nft.OfNode, own, more || o.hasKind(ranged)),
		})
	}
	if o.hasKind(ranged) {
		rules = append(rules, nft.Rule{nft.InSet{Key: nft.Concat{address}, Set: nft.RangeAddressesSet}, verdict(nft.OfRange, chain, more)})
	}
	return rules
}

// nodeChains returns the counterparts of choose, dispatch, prerouting, output and postrouting.
// The one of output exists only while it has a rule of its own.
func nodeChains(f model.Family, r *model.Routing, o options) []*nft.Chain {
	if !r.Wildcards {
		return nil
	}
	local, _ := notFromPod(f, r)
	local = append(local, classifyRule(nft.OfNode, nft.LocalServicesMap)...)
	guards, next := guardRules(nft.OfNode, r.Observe, o), nft.Rule{nft.Verdict{Action: nft.Goto, Chain: nft.OfNode.Chain(nft.DispatchChain)}}
	var output []*nft.Chain
	if len(guards) > 0 {
		output = []*nft.Chain{{Name: nft.OfNode.Chain(outputChain), Rules: append(guards[:len(guards):len(guards)], next)}}
	}
	masquerade := append(acceptLocal(nft.OfPort), masqueradeExternal(nft.OfNode, masqueradeStatement(f, r))...)
	if o.hasKind(ranged) { // whose rules come behind
		masquerade = append(masquerade, acceptLocal(nft.OfNode)...)
	}
	// A packet from the network whose destination is the unspecified address finds the element of a NodePort
	// in dispatch.
	choose := chooseChain(nft.OfNode, r.Observe)
	choose.Rules = append(offNode(r.Observe), choose.Rules...)
	return append(output, []*nft.Chain{
		choose,
		dispatchChain(nft.OfNode),
		{Name: nft.OfNode.Chain(preroutingChain), Rules: append(guards[:len(guards):len(guards)], local, next)},
		// A frontend with the address and port of a NodePort has policy Local here:
		// the rules before masquerade the rest.
		{Name: nft.OfNode.Chain(postroutingChain), Rules: masquerade},
	}...)
}

// offNode drops packets to addresses that serve no NodePorts. It is in the chains that
// translate connections to NodePorts, so that others do not pass it.
//
//	ip daddr != @node-addresses drop
func offNode(observe model.Observe) []nft.Rule {
	elsewhere := nft.InSet{Key: nft.Concat{nft.DestinationAddress}, Set: nft.NodeAddressesSet, Not: true}
	return []nft.Rule{{elsewhere, refusalVerdict(observe, model.InvalidDestination, nft.OfPort)}}
}

// acceptLocal ends the hook for frontends of a shape that keep the addresses of clients.
func acceptLocal(s nft.Shape) []nft.Rule {
	var out []nft.Rule
	for _, p := range model.Protocols {
		out = append(out, nft.Rule{nft.ProtocolIs{Protocol: p}, fromShape(s, nft.LocalFrontendsSet), nft.Verdict{Action: nft.Accept}})
	}
	return out
}
