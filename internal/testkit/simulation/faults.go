package simulation

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// drawFault draws a fault of a transaction.
func drawFault(dice *rand.Rand) Fault {
	before := []error{unix.EINTR, unix.ENOBUFS, unix.ENOMEM, unix.ERESTART, unix.EAGAIN, kernel.ErrNoAnswer}
	after := []error{unix.ENOBUFS, unix.EINTR, kernel.ErrNoAnswer}
	switch dice.IntN(5) {
	case 0:
		return Fault{Removal: unix.EBUSY}
	case 1, 2:
		return Fault{After: after[dice.IntN(len(after))]}
	}
	return Fault{Before: before[dice.IntN(len(before))]}
}

// disturb has another program change the rules. Unless there are other faults, they are repaired: within a second if
// connections fail and the process learns of that.
func (r *run) disturb(missed bool, dice *rand.Rand) error {
	calm := r.isCalm()
	within := r.Tables.Disturb(missed, func(rules *nft.Ruleset) bool { return vandalize(rules, dice) })
	if within == 0 || !calm {
		synctest.Wait()
		return nil
	}
	pass(within)
	if wrong := r.Tables.compare(r.newest()); len(wrong) > 0 {
		return fmt.Errorf("rules are not repaired %s after another program has changed them: %s", within, wrong[0])
	}
	return nil
}

// isCalm reports whether the process has no work, and nothing keeps it from its next.
func (r *run) isCalm() bool {
	blind := false
	r.objects.set(func() { blind = len(r.objects.hidden)+len(r.objects.late) > 0 || r.objects.unreadable != nil })
	r.Tables.mu.Lock()
	defer r.Tables.mu.Unlock()
	return !blind && len(r.Tables.faults) == 0 && !r.Tables.vandalized && r.Tables.refused == (model.ServiceName{}) && !r.unchecked &&
		r.process.failure == nil && r.process.agent.State().Pending.IsZero()
}

// vandalize changes our rules as another program may, and reports whether connections fail then.
func vandalize(rules *nft.Ruleset, dice *rand.Rand) (urgent bool) {
	if len(rules.Tables) == 0 {
		return false
	}
	t := rules.Tables[dice.IntN(len(rules.Tables))]
	switch dice.IntN(5) {
	case 0:
		rules.Tables = nil
	case 1:
		rules.Tables = slices.DeleteFunc(rules.Tables, func(o *nft.Table) bool { return o == t })
	case 2:
		for _, s := range t.Sets {
			if s.Name == nft.ServicesMap {
				s.Elements = nil
			}
		}
	case 3:
		addForeign(t, dice)
		return false
	default:
		for _, s := range t.Sets {
			if n := len(s.Elements); s.Name == nft.ServicesMap && n > 0 {
				i := dice.IntN(n)
				s.Elements = slices.Delete(s.Elements, i, i+1)
			}
		}
		return false
	}
	return true
}

// addForeign adds an element with the key of a frontend that may come.
func addForeign(t *nft.Table, dice *rand.Rand) {
	s := t.Set(nft.ServicesMap)
	if s == nil || len(s.Elements) == 0 {
		return
	}
	e := s.Elements[dice.IntN(len(s.Elements))]
	e.Key.Address = netip.AddrFrom4([4]byte{10, 96, 0, byte(dice.IntN(services))})
	if t.Family == model.IPv6 {
		e.Key.Address = netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%d", dice.IntN(services)))
	}
	if find(s, &e) == nil {
		s.Elements = append(s.Elements, e)
		s.Sort()
	}
}
