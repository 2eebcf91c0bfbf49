package apply

import (
	"iter"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Empty reports whether the kernel has none of our tables.
func (a *Applier) Empty() (bool, error) { return a.kernel.Empty() }

// Load carries out changes that lead from nothing to the wanted rules, each in one
// transaction. The next change is made while the kernel works. Load returns the committed
// part; if there were several transactions, their elements are counted and not
// listed. After an error the next change must be complete: it compares with the kernel.
func (a *Applier) Load(parts iter.Seq[nft.Delta]) (*plan.Plan, error) {
	a.known, a.slots = false, make(slots) // the slots are as rendered
	// The kernel refuses chains that exist, so the generation need not be checked:
	// other programs may be busy with tables of their own.
	u := &execution{Applier: a, generation: kernel.AnyGeneration}
	whole, first := &plan.Plan{}, true
	for part := range parallel.Ahead(prepareParts(parts)) {
		if part.Empty() {
			continue
		}
		if err := u.commitPrepared(part); err != nil {
			return nil, err
		}
		if whole.Empty() {
			whole = part.Plan
			continue
		}
		if first {
			all := whole
			whole, first = &plan.Plan{}, false
			whole.Record(all)
		}
		whole.Record(part.Plan)
	}
	a.known = true
	return whole, nil
}

// held is how many transactions of a load are in use: the one that is made, the one that is
// carried out or waits for that, and the first one until the second is carried out.
const held = 3

// prepareParts returns the transactions of a load. The memory of each is used again for the third
// one after it.
func prepareParts(parts iter.Seq[nft.Delta]) iter.Seq[kernel.Prepared] {
	return func(yield func(kernel.Prepared) bool) {
		var spare [held]kernel.Prepared
		n := 0
		for d := range parts {
			p := spare[n].Plan
			if p == nil {
				p = &plan.Plan{}
			}
			spare[n] = kernel.Prepare(p.DiffAgain(d.Before, d.After), spare[n])
			if !yield(spare[n]) {
				return
			}
			n = (n + 1) % held
		}
	}
}
