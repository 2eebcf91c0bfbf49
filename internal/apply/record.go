package apply

import (
	"bytes"
	"crypto/sha256"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Record identifies what the kernel held when a process ended. The next one need not read
// it back if the kernel's generation is still the same, and if its own rules are the same.
//
// A record of another boot or of another network namespace is not used: see
// [kernel.Identity]. A generation has 32 bits: [kernel.Moment] says how long none comes back.
type Record struct {
	Kernel     kernel.Identity
	Generation uint32
	Made       kernel.Moment
	Rules      []byte      // a hash, with the endpoints in their slots
	Slots      []placement // of the frontends whose endpoints are not in the order of the renderer
}

// placement has the order of the endpoints of a frontend: see [slots].
type placement struct {
	Frontend model.FrontendID
	Order    []uint32
}

// Record returns the record of the rules that the kernel holds, without its identity and
// generation; nil: it may hold others, or more. The rules are complete and as rendered.
func (a *Applier) Record(rules *nft.Ruleset) *Record {
	if !a.known || a.remains {
		return nil
	}
	r := &Record{}
	for f, order := range a.slots {
		r.Slots = append(r.Slots, placement{f, order})
	}
	var ok bool
	if r.Rules, ok = a.slots.digestRules(rules); !ok {
		return nil
	}
	return r
}

// Resume makes complete rules, as rendered, those that the kernel holds if they are the ones
// of a record, and reports whether they are. The caller knows that the kernel holds what it
// held then.
func (a *Applier) Resume(rules *nft.Ruleset, r *Record) bool {
	held := r.heldSlots()
	if held == nil {
		return false
	}
	if sum, ok := held.digestRules(rules); !ok || !bytes.Equal(sum, r.Rules) {
		return false
	}
	a.adoptSlots(held)
	return true
}

// Adopt is [Applier.Resume] for rules that the caller knows to be the ones of the record,
// with endpoints in the slots of the record. It reports whether the record has any.
func (a *Applier) Adopt(r *Record) bool {
	held := r.heldSlots()
	if held != nil {
		a.adoptSlots(held)
	}
	return held != nil
}

func (a *Applier) adoptSlots(held slots) {
	a.known, a.remains, a.slots, a.failed = true, false, held, &plan.Plan{}
}

// heldSlots returns the slots of endpoints; nil: the record has impossible ones.
func (r *Record) heldSlots() slots {
	held := make(slots, len(r.Slots))
	for _, p := range r.Slots {
		if len(p.Order) == 0 || int(slices.Max(p.Order)) >= len(p.Order) {
			return nil
		}
		held[p.Frontend] = p.Order
	}
	return held
}

// digestStep is how many elements are encoded together.
const digestStep = 256

// digestRules returns a hash of all that would be sent to the kernel to make the rules, with the
// endpoints in these slots. It does not modify the rules, and reports false if the slots are
// those of other rules.
func (s slots) digestRules(rules *nft.Ruleset) (sum []byte, ok bool) {
	placed, ok := s.placeCopy(rules)
	if !ok {
		return nil, false
	}
	skeleton := &nft.Ruleset{}
	for _, t := range placed.Tables {
		empty := *t
		empty.Sets = nil
		for _, set := range t.Sets {
			without := *set
			without.Elements = nil
			empty.Sets = append(empty.Sets, &without)
		}
		skeleton.Tables = append(skeleton.Tables, &empty)
	}
	transaction, err := codec.Encode(plan.Diff(&nft.Ruleset{}, skeleton))
	if err != nil {
		return nil, false
	}
	h := sha256.New()
	for i := range transaction.Messages {
		h.Write(transaction.Messages[i].Data)
	}
	for _, t := range placed.Tables {
		for _, set := range t.Sets {
			if set.Dynamic { // its elements are state
				continue
			}
			for part := range slices.Chunk(set.Elements, digestStep) {
				list := codec.ElementList{Verb: unix.NFT_MSG_NEWSETELEM}
				for i := range part {
					list.Append(set, t.Family, &part[i])
				}
				h.Write(list.Message().Data)
			}
		}
	}
	return h.Sum(nil), true
}

func (s slots) placeCopy(rules *nft.Ruleset) (*nft.Ruleset, bool) {
	if len(s) == 0 {
		return rules, true
	}
	out := &nft.Ruleset{}
	for _, t := range rules.Tables {
		own := *t
		own.Sets = slices.Clone(t.Sets)
		for i, set := range own.Sets {
			if set.HasSlots() {
				copied := *set
				copied.Elements = slices.Clone(set.Elements)
				own.Sets[i] = &copied
			}
		}
		out.Tables = append(out.Tables, &own)
	}
	return out, s.placeEndpoints(out)
}
