package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Explain walks the first packet of a connection through a table, which is nil
// where there is none for the packet's family. local holds the addresses of
// the node; a packet from one of them, or from nowhere, is one of the node's
// own. The table's elements must be sorted.
func Explain(t *nft.Table, p Packet, local []netip.Addr) *Result {
	w := &walk{table: t, local: local}
	p.FromNode = p.FromNode || !p.Source.IsValid() || w.isLocal(p.Source)
	r := &Result{Packet: p}
	if !p.Source.IsValid() {
		r.Notes = append(r.Notes, "the address that the node would use is not known: it is taken for none of the pods'")
	}
	if t == nil {
		reason := fmt.Sprintf("there is no table for %s", model.FamilyOf(p.Destination))
		r.Outcomes = []Outcome{{Verdict: NotOurs, Reason: reason, Share: 1}}
		return r
	}
	r.name(t)
	first := nft.Prerouting
	if p.FromNode {
		first = nft.Output
	}
	start := traveller{Packet: p, dialled: p.Frontend(), Outcome: Outcome{Share: 1}}
	for _, there := range w.hook(start, first) {
		for _, end := range w.hook(there, w.second(&there)) {
			end.Reason = reason(&end.Outcome)
			r.Outcomes = append(r.Outcomes, end.Outcome)
		}
	}
	r.Outcomes = joined(r.Outcomes)
	slices.SortStableFunc(r.Outcomes, func(a, b Outcome) int {
		return cmp.Or(a.Endpoint.Compare(b.Endpoint), cmp.Compare(a.Verdict, b.Verdict))
	})
	return r
}

// joined adds up outcomes that differ in nothing but the way there, as where
// chance decides on the counter that a slot is taken from. The likeliest way
// counts.
func joined(outcomes []Outcome) []Outcome {
	slices.SortStableFunc(outcomes, func(a, b Outcome) int { return cmp.Compare(b.Share, a.Share) })
	first := make(map[likeness]int)
	var out []Outcome
	for _, o := range outcomes {
		if i, ok := first[o.likeness()]; ok && slices.Equal(out[i].Slots, o.Slots) {
			out[i].Share += o.Share
			continue
		}
		first[o.likeness()] = len(out)
		out = append(out, o)
	}
	return out
}

// walk leads packets through the chains of a table.
type walk struct {
	table *nft.Table
	local []netip.Addr
}

// traveller is a packet on its way: the destination and port are those to
// which it was sent on.
type traveller struct {
	Packet
	Outcome
	dialled    model.Frontend
	translated bool // as connection tracking notes it
	settled    bool // no nat chain of this hook is to see it any more
	stopped    bool // nor any chain at all
}

func (p *traveller) stop(v Verdict, reason string) {
	p.Verdict, p.Reason, p.stopped = v, reason, true
}

func (w *walk) isLocal(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(w.local, a)
}

// second returns the hook in which the source is decided: input for what
// others send to the node itself, else postrouting.
func (w *walk) second(p *traveller) nft.Hook {
	if !p.FromNode && w.isLocal(p.Destination) {
		return nft.Input
	}
	return nft.Postrouting
}

// hook leads a packet through the base chains of a hook.
func (w *walk) hook(p traveller, h nft.Hook) []traveller {
	var chains []*nft.Chain
	for _, c := range w.table.Chains {
		if c.Hook == h {
			chains = append(chains, c)
		}
	}
	slices.SortStableFunc(chains, func(a, b *nft.Chain) int { return cmp.Compare(a.Priority, b.Priority) })
	p.settled = false
	out := []traveller{p}
	for _, c := range chains {
		var next []traveller
		for _, p := range out {
			if p.settled || p.stopped {
				next = append(next, p)
				continue
			}
			next = append(next, w.run(p, []frame{{chain: c}})...)
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

// Limits of a walk. The kernel has the first one too
// (NFT_JUMP_STACK_SIZE); the second one ends a walk in a circle, which the
// kernel would not load.
const (
	maxFrames = 16
	maxSteps  = 10_000
)

// run leads a packet through a base chain and those that it goes to from
// there. Where slots are chosen the ways part, and several packets return.
func (w *walk) run(p traveller, stack []frame) []traveller {
	for len(stack) > 0 && !p.stopped {
		top := &stack[len(stack)-1]
		if top.next == len(top.chain.Rules) {
			stack = stack[:len(stack)-1]
			continue
		}
		rule := top.chain.Rules[top.next]
		top.next++
		turns := w.rule(&p, top.chain, rule)
		if len(turns) == 1 {
			p, stack = turns[0].traveller, w.follow(&turns[0], stack)
			continue
		}
		var out []traveller
		for i := range turns {
			out = append(out, w.run(turns[i].traveller, w.follow(&turns[i], slices.Clone(stack)))...)
		}
		return out
	}
	return []traveller{p}
}

// follow returns where a packet goes on after a rule. It stops a packet whose
// way is not to be found.
func (w *walk) follow(t *turn, stack []frame) []frame {
	if t.settled || t.next.Action == nft.Accept {
		return nil
	}
	if t.next.Action != nft.Goto && t.next.Action != nft.Jump {
		return stack
	}
	c := w.table.Chain(t.next.Chain)
	if t.next.Action == nft.Goto {
		stack = stack[:len(stack)-1]
	}
	if c == nil || len(stack) == maxFrames || len(t.Path) > maxSteps {
		t.stop(Unknown, fmt.Sprintf("%q leads nowhere", t.next))
		return nil
	}
	return append(stack, frame{chain: c})
}
