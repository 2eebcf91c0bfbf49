package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Explain traces the first packet of a connection through the table of its family,
// or nil. local holds the addresses of the node: a packet from one of them, or
// without a source, is sent by the node. The table's elements must be sorted.
func Explain(t *nft.Table, p Packet, local []netip.Addr) *Result {
	tr := &tracer{table: t, local: local}
	p.FromNode = p.FromNode || !p.Source.IsValid() || tr.isLocal(p.Source)
	r := &Result{Packet: p}
	if t == nil {
		reason := fmt.Sprintf("there is no table for %s", model.FamilyOf(p.Destination))
		r.Outcomes = []Outcome{{Ending: Ending{Verdict: NotOurs, Reason: reason}, Share: 1}}
		return r
	}
	r.nameIn(t)
	first := nft.Prerouting
	if p.FromNode {
		first = nft.Output
	}
	start := state{Packet: p, dialled: p.Frontend(), Outcome: Outcome{Share: 1, portless: p.Port == 0, echo: p.isEcho() && t.Set(nft.EchoSet) != nil}}
	for _, there := range tr.traceHook(start, first) {
		second := nft.Postrouting // has source NAT, except for packets from other hosts to the node itself
		if !there.FromNode && tr.isLocal(there.Destination) {
			second = nft.Input
		}
		for _, end := range tr.traceHook(there, second) {
			end.Reason = reasonFor(&end.Outcome)
			r.Outcomes = append(r.Outcomes, end.Outcome)
		}
	}
	if slices.ContainsFunc(r.Outcomes, func(o Outcome) bool { return o.guessed }) {
		r.Notes = append(r.Notes, "a rule depends on the node's source address, which is not known: assuming one that is neither a pod's nor in a source range; --from names one")
	}
	r.Outcomes = joinOutcomes(r.Outcomes)
	slices.SortStableFunc(r.Outcomes, func(a, b Outcome) int {
		return cmp.Or(a.Endpoint.Compare(b.Endpoint), cmp.Compare(a.Verdict, b.Verdict))
	})
	return r
}

// joinOutcomes merges outcomes that end alike, in two steps: first within a lane, where an endpoint may have
// several slots, then across paths, for example where the counter for the slot is chosen at random. It keeps the likeliest path.
func joinOutcomes(outcomes []Outcome) []Outcome {
	outcomes = mergeOutcomes(outcomes, true)
	slices.SortStableFunc(outcomes, func(a, b Outcome) int { return cmp.Compare(b.Share, a.Share) })
	return mergeOutcomes(outcomes, false)
}

// mergeOutcomes adds an outcome to the last one of the same ending, if they are of one lane, or have the same slots.
func mergeOutcomes(outcomes []Outcome, ofLane bool) (out []Outcome) {
	last := make(map[Ending]int)
	for _, o := range outcomes {
		i, known := last[o.Ending]
		switch {
		case known && ofLane && out[i].lane == o.lane && o.lane != "":
			out[i].Share += o.Share
			out[i].Slots = append(out[i].Slots, o.Slots...)
		case known && !ofLane && slices.Equal(out[i].Slots, o.Slots):
			out[i].Share += o.Share
		default:
			last[o.Ending] = len(out)
			out = append(out, o)
		}
	}
	return out
}

type tracer struct {
	table *nft.Table
	local []netip.Addr
}

// state is a packet between two rules, with the translated destination and port.
type state struct {
	Packet
	Outcome
	dialled    model.Frontend
	class      nft.Class // or the number of a slot
	arrival    nft.Class // that a lane with affinity has noted for the connection
	translated bool      // according to connection tracking
	settled    bool      // for the NAT chains of this hook
	stopped    bool      // for all chains
}

func (p *state) stop(v Disposition, reason string) {
	p.Verdict, p.Reason, p.stopped = v, reason, true
}

func (tr *tracer) isLocal(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(tr.local, a)
}

func (tr *tracer) traceHook(p state, h nft.Hook) []state {
	chains := slices.DeleteFunc(slices.Clone(tr.table.Chains), func(c *nft.Chain) bool { return c.Hook != h || c.Filter })
	slices.SortStableFunc(chains, func(a, b *nft.Chain) int { return cmp.Compare(a.Priority, b.Priority) })
	p.settled = false
	out := []state{p}
	for _, c := range chains {
		var next []state
		for _, p := range out {
			next = append(next, tr.run(p, []frame{{chain: c}})...)
		}
		out = next
	}
	return out
}

// frame is a place in a chain: the number of the next rule.
type frame struct {
	chain *nft.Chain
	next  int
}

const (
	maxFrames = 16     // also the kernel's limit (NFT_JUMP_STACK_SIZE)
	maxSteps  = 10_000 // ends loops of chains, which the kernel would not load
)

// run evaluates a base chain and the chains that it leads to. It returns several
// states if slots are chosen.
func (tr *tracer) run(p state, stack []frame) []state {
	for len(stack) > 0 && !p.stopped && !p.settled {
		top := &stack[len(stack)-1]
		if top.next == len(top.chain.Rules) {
			stack = stack[:len(stack)-1]
			continue
		}
		rule := top.chain.Rules[top.next]
		top.next++
		branches := tr.traceRule(&p, top.chain, rule)
		if len(branches) == 1 {
			p, stack = branches[0].state, tr.nextStack(&branches[0], stack)
			continue
		}
		var out []state
		for i := range branches {
			out = append(out, tr.run(branches[i].state, tr.nextStack(&branches[i], slices.Clone(stack)))...)
		}
		return out
	}
	return []state{p}
}

// nextStack returns the stack after a rule. It stops a packet whose next chain does
// not exist.
func (tr *tracer) nextStack(t *branch, stack []frame) []frame {
	switch t.next.Action {
	case nft.Accept:
		return nil
	case nft.Return:
		return stack[:len(stack)-1]
	case nft.Jump:
	case nft.Goto:
		stack = stack[:len(stack)-1]
	default:
		return stack
	}
	c := tr.table.Chain(t.next.Chain)
	if c == nil || len(stack) == maxFrames || len(t.Path) > maxSteps {
		t.stop(Unknown, fmt.Sprintf("%q leads nowhere", t.next))
		return nil
	}
	return append(stack, frame{chain: c})
}
