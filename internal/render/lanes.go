package render

import (
	"cmp"
	"fmt"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/placement"
)

// counters is the number of round robin lanes for each number of slots.
//
// A counter belongs to a rule. If all services with n endpoints shared one, a client
// that calls A, B, A, B... would always reach the same endpoint of A. So they are
// spread over several counters: 16 separate two services in 15 of 16 cases.
//
// That leaves clients that call many services in a fixed order: if a counter always
// advances by the same number between two connections of a service, some of its
// endpoints are never used. So one of evasion connections uses a counter common to
// all services with n endpoints, which shifts the next one on its own counter.
// A service that is called alone stays balanced: its endpoints take turns on both
// counters.
const (
	counters = 16
	evasion  = 8
)

// lane is a chain that picks one of some slots. Services share it.
type lane struct {
	slots   nft.Slots
	counter uint64 // of round robin, less than 16 except for the common lane
	// shape is the shape of the frontends. The lanes of ranges look up endpoints themselves.
	shape   nft.Shape
	onePort bool // the endpoints of a range have one port
}

// Classes of frontends without a lane. Classes of lanes have a number of slots.
const (
	refused nft.Class = 1
	dropped nft.Class = 2
	relayed nft.Class = 3 // one for all
)

// Parts of the class of a lane, which nft prints as the number of slots and, behind
// the colon, one hexadecimal digit each for more than 65,535 slots, the flags, the
// scheduler and the counter.
const (
	classScheduler   = 1 << 4
	classShared      = 1 << 7
	classSticky      = 1 << 8
	classLocalSticky = 1 << 9
	classOnNode      = 1 << 10
	classOutside     = 1 << 11
)

// classOf returns the class of frontends that use a lane, or whose clients a chain binds. No
// two lanes have the same, and no two of these chains.
func (u laneUse) classOf() nft.Class {
	switch {
	case u.isBinder():
		return u.binds.Class()
	case u.relays:
		return relayed
	}
	slots := u.lane.slots
	c := slots.Count<<16 | slots.Count>>16<<12 | uint32(slots.Scheduler-model.RoundRobin)*classScheduler | uint32(u.lane.counter)
	switch u.bindings {
	case nft.AffinityMap:
		c |= classSticky
	case nft.LocalAffinityMap:
		c |= classLocalSticky
	case nft.SharedAffinityMap:
		c |= classShared
	}
	if u.lane.shape == nft.OfNode {
		c |= classOnNode
	}
	if slots.First == nft.OwnSlots {
		c |= classOutside
	}
	return nft.Class(c)
}

// hasClass reports whether frontends have the class of a lane. Only other lanes lead to
// the common one, the verdicts of ranges to theirs, and the verdicts of frontends to the
// limits of their clients.
func (u laneUse) hasClass() bool {
	return u.lane.counter != counters && u.lane.shape != nft.OfRange && !u.isLimit() && !u.isSources()
}

func (u laneUse) isLimit() bool { return u.limits != clientLimit{} }

func (u laneUse) isSources() bool { return u.sources != sourcesUse{} }

func (u laneUse) isBinder() bool { return u.binds != nft.Affinity{} }

func (u laneUse) leadingMap() string {
	if u.isBinder() {
		return nft.BindersMap
	}
	return nft.LanesMap
}

// fixedLanes are the elements of the map of lanes that are always there.
func fixedLanes(observe model.Observe) []nft.Element {
	return []nft.Element{
		{Key: nft.ClassKey(refused), Value: nft.Value{Verdict: refusalVerdict(observe, model.NoEndpoints, nft.OfPort)}},
		{Key: nft.ClassKey(dropped), Value: nft.Value{Verdict: refusalVerdict(observe, model.NoLocalEndpoints, nft.OfPort)}},
	}
}

// laneFor returns the lane of a service port. It depends only on its arguments, so
// a dry run shows the same as a node has.
func laneFor(port model.PortName, scheduler model.Scheduler, s placement.Span) lane {
	l := lane{slots: nft.Slots{Scheduler: scheduler, Count: uint32(s.Count), First: uint32(s.First)}}
	if s.Count == 1 { // there is no choice
		l.slots.Scheduler = model.RoundRobin
		return l
	}
	if scheduler == model.RoundRobin {
		l.counter = placement.NewHash(port.Service.Namespace, port.Service.Name, port.Port, port.Protocol.String()).MixedSum() % counters
	}
	return l
}

// chainName returns for example "rr-3-5", "rr-3-5-outside" for slots that only clients
// outside of the cluster use, "node-rr-3-5" for NodePorts with the unspecified
// address, "range-rr-3-5" for ranges of ports, or "range-port-rr-3-5" for those whose
// endpoints have one port.
func (l lane) chainName() string {
	name := fmt.Sprintf("rr-%d-%d", l.slots.Count, l.counter)
	switch l.slots.Scheduler {
	case model.Random:
		name = fmt.Sprintf("random-%d", l.slots.Count)
	case model.SourceHash:
		name = fmt.Sprintf("hash-%d", l.slots.Count)
	case model.Maglev, model.MaglevPort:
		name = fmt.Sprintf("%s-%d", l.slots.Scheduler, l.slots.Count)
	}
	if l.slots.First == nft.OwnSlots {
		name += "-outside"
	}
	if l.onePort {
		name = "port-" + name
	}
	return l.shape.Chain(name)
}

func (l lane) compare(o lane) int {
	return cmp.Or(cmp.Compare(l.slots.Scheduler, o.slots.Scheduler), cmp.Compare(l.slots.Count, o.slots.Count),
		cmp.Compare(l.slots.First, o.slots.First), cmp.Compare(l.counter, o.counter), cmp.Compare(l.shape, o.shape), cmp.Compare(rangeEndpoints(l.onePort), rangeEndpoints(o.onePort)))
}

// withCommonCounter returns the lane with the common counter, and whether l is another lane
// that sometimes leads there.
func (l lane) withCommonCounter() (lane, bool) {
	own := l.slots.Scheduler == model.RoundRobin && l.slots.Count > 1 && l.counter != counters
	l.counter = counters
	return l, own
}

// laneChain returns the chain of a lane, for example
//
//	numgen random mod 8 0 goto rr-3-16
//	meta priority set numgen inc mod 3 offset 1 goto choose
//
// and that of a range
//
//	dnat to ip daddr . meta l4proto . meta priority . numgen inc mod 3 offset 1 map @range-endpoints
//	meta priority set none
func (l lane) laneChain(observe model.Observe) *nft.Chain {
	c := &nft.Chain{Name: l.chainName()}
	if other, ok := l.withCommonCounter(); ok {
		c.Rules = append(c.Rules, nft.Rule{nft.OneIn{Of: evasion}, nft.Verdict{Action: nft.Goto, Chain: other.chainName()}})
	}
	if l.shape == nft.OfRange {
		key := append(dialled[l.shape][:3:3], l.slots)
		c.Rules = append(append(c.Rules, toSample(observe)...),
			nft.Rule{nft.DNAT{Key: key, Map: rangeEndpoints(l.onePort), KeepPort: !l.onePort}},
			nft.Rule{nft.Declassify})
		return c
	}
	choose := nft.Verdict{Action: nft.Goto, Chain: l.shape.Chain(nft.ChooseChain)}
	c.Rules = append(c.Rules, nft.Rule{nft.Choose{Slots: l.slots}, choose})
	return c
}

// chainName returns for example "rr-3-5", or with affinity "sticky-rr-3-5".
func (u laneUse) chainName() string {
	switch {
	case u.relays:
		return nft.RelayChain
	case u.isSources():
		return u.lane.shape.Chain(u.sources.Value().chainName())
	case u.isLimit():
		return u.limits.chainName()
	case u.isBinder():
		return u.binds.Binder()
	case u.bindings == nft.AffinityMap:
		return "sticky-" + u.lane.chainName()
	case u.bindings == nft.LocalAffinityMap:
		return "local-sticky-" + u.lane.chainName()
	case u.bindings == nft.SharedAffinityMap:
		return "shared-sticky-" + u.lane.chainName()
	}
	return u.lane.chainName()
}

// laneChain returns the chain of a lane, or the one that binds or limits clients. With affinity the client gets its previous
// endpoint. That lookup is in a separate chain, because the kernel walks all elements
// of a map for each added rule that refers to it (0.25 s with a million bindings,
// measured on 6.18).
func (u laneUse) laneChain(observe model.Observe) *nft.Chain {
	switch {
	case u.relays:
		return relayChain(observe)
	case u.isSources():
		return u.sources.Value().snatChain(u.lane.shape)
	case u.isLimit():
		return u.limits.limitChain(observe)
	case u.isBinder():
		return binderChain(u.binds, observe)
	case u.bindings == "":
		return u.lane.laneChain(observe)
	}
	return &nft.Chain{Name: u.chainName(), Rules: []nft.Rule{
		{nft.Verdict{Action: nft.Jump, Chain: nft.RecallChain(u.bindings, u.lane.shape)}},
		{nft.Verdict{Action: nft.Goto, Chain: u.lane.chainName()}},
	}}
}
