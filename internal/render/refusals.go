package render

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Every connection that the rules refuse ends with a verdict that [refusalVerdict] returns. While
// refusals are observed, it leads to a chain for the reason, which counts the connection
// in a dynamic set, logs samples, and refuses it. The elements of these sets are state, like
// bindings of clients. Connections that are served do not pass these chains.
//
// The first of the limits belongs to the element, so that a flood of one frontend leaves room
// for the others in the log. The last rule refuses also when the set is full. Of a refused packet's time, the
// look-up with the counter takes 4 % and the rate, which is a lock and a clock, 3.5 % (6.18). Samples by
// number (numgen) in front of the rate would take 1 %, but hide most refusals of a frontend without a flood.

// refusalVerdict returns the verdict for connections to frontends of a shape that are refused for
// a reason.
func refusalVerdict(observe model.Observe, r model.RefusalReason, s nft.Shape) nft.Verdict {
	if observe.Refusals() {
		return nft.Verdict{Action: nft.Goto, Chain: nft.RefusalOf(r, s)}
	}
	return endingVerdict(r)
}

func endingVerdict(r model.RefusalReason) nft.Verdict {
	if model.Refusals[r].Rejected {
		return nft.Verdict{Action: nft.Goto, Chain: nft.RefuseChain}
	}
	return nft.Verdict{Action: nft.Drop}
}

// eachRefusal calls do for each reason that frontends of a shape can have in the table.
func eachRefusal(r *model.Routing, o options, do func(model.RefusalReason, nft.Shape)) {
	if !r.Observe.Refusals() {
		return
	}
	for _, s := range []nft.Shape{nft.OfPort, nft.OfRange} {
		if s == nft.OfRange && !o.hasKind(ranged) {
			continue
		}
		for reason, row := range model.Refusals {
			if reason := model.RefusalReason(reason); (s == nft.OfPort || row.CountedBy == model.ByFrontend) && o.canRefuse(r, reason, s) {
				do(reason, s)
			}
		}
	}
}

// canRefuse reports whether a rule of the table refuses connections to frontends of a shape
// for a reason that depends on an option or a setting.
func (o options) canRefuse(r *model.Routing, reason model.RefusalReason, s nft.Shape) bool {
	switch reason {
	case model.NotAllowed, model.Denied:
		return slices.ContainsFunc(o.clientListsOf(s), func(l clientList) bool { return l.reason == reason })
	case model.OverRate, model.OverClientRate, model.OverConnections, model.OverClientConnections:
		return slices.ContainsFunc(o.limitKinds(s), func(k model.LimitKind) bool { return model.OverReason(k) == reason })
	case model.AffinityReleased: // ranges have no affinity
		return s == nft.OfPort && o.hasKind(sticky)
	case model.InvalidDestination:
		return r.Wildcards
	case model.PingRefused:
		return len(r.AnswerFrom) > 0
	}
	return true
}

func refusalSets(r *model.Routing, o options) (out []*nft.Set) {
	eachRefusal(r, o, func(reason model.RefusalReason, s nft.Shape) {
		out = append(out, declareDynamic(nft.RefusalOf(reason, s), budget.CountedRefusals, true))
	})
	return out
}

// refusalChains returns the chains that count and refuse.
//
//	update @refused-denied { ip daddr . meta l4proto . th dport counter limit rate 10/second burst 10 packets }
//	  limit rate 500/second burst 500 packets log prefix "denied" group 28272 snaplen 96
//	drop
func refusalChains(r *model.Routing, o options) (out []*nft.Chain) {
	eachRefusal(r, o, func(reason model.RefusalReason, s nft.Shape) {
		c := &nft.Chain{Name: nft.RefusalOf(reason, s)}
		count := func(key nft.Concat, before ...nft.Statement) {
			c.Rules = append(c.Rules, append(before,
				nft.CountRefused{Set: c.Name, Key: key, Rate: nft.SampleRate}, nft.Within{Rate: nft.LogRate},
				nft.Log{Prefix: reason.String(), Group: r.Observe.Group, Snaplen: nft.Snaplen}))
		}
		switch by := model.Refusals[reason].CountedBy; {
		case by == model.ByAddress:
			count(nft.Concat{nft.DestinationAddress})
		case by == model.ByProtocol:
			count(nft.Concat{nft.AnyDestination, nft.TransportProtocol})
		case reason == model.AffinityReleased: // behind DNAT
			for _, p := range model.Protocols { // nft requires it before "proto-dst"
				count(original[s], nft.ProtocolIs{Protocol: p})
			}
		default:
			count(dialled[s])
		}
		c.Rules = append(c.Rules, nft.Rule{endingVerdict(reason)})
		out = append(out, c)
	})
	return out
}
