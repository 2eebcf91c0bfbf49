package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"golang.org/x/sys/unix"
)

// Refusal is something that the kernel does not take, whatever else there is.
type Refusal struct {
	// Service needs it; the zero name if no Service does.
	Service model.ServiceName
	Err     error // the kernel's, which names the element
}

func (r Refusal) String() string {
	if r.Service == (model.ServiceName{}) {
		return r.Err.Error()
	}
	return fmt.Sprintf("Service %s: %v", r.Service, r.Err)
}

// RefusedError says what the kernel does not take of a ruleset. All else was
// applied; of what is named here everything is in the kernel as it was before.
type RefusedError struct {
	Refusals []Refusal // at least one
}

func (e *RefusedError) Error() string {
	texts := make([]string, len(e.Refusals))
	for i, r := range e.Refusals {
		texts[i] = r.String()
	}
	return "the kernel refuses a part of the rules; that stays as it was, and the others are applied: " + strings.Join(texts, "; ")
}

// ApplyMost is like [Applier.Apply], but where the kernel refuses elements it
// leaves out the Services that need them, and them alone: then the error is a
// *[RefusedError], and the plan is what was committed for the others. Chains and
// sets that nothing needs any more stay as well then. The routes say which
// Service needs what: those of the ruleset, and after them others that the
// kernel may hold.
//
// What the kernel refuses is found by trials that change nothing, so that all
// that is applied is applied in the same transactions as ever.
func (a *Applier) ApplyMost(desired *render.Ruleset, routes []model.Route) (*Plan, error) {
	return a.applyBut(&sieve{routes: routes}, desired)
}

// isRefusal tells whether the kernel refused a transaction because of what is
// in it.
func isRefusal(err error) bool {
	var commit *CommitError
	if !errors.As(err, &commit) || isOpen(err) {
		return false
	}
	for _, other := range []error{unix.EPERM, unix.ENOMEM, unix.ERESTART, unix.EAGAIN} {
		if errors.Is(err, other) {
			return false
		}
	}
	return true
}

// sieve knows what the kernel does not take. A nil sieve lets everything
// through.
type sieve struct {
	routes   []model.Route
	owners   *owners // nil: nobody has asked yet
	refused  map[unit]bool
	refusals []Refusal
}

// err returns what was left out, as an error.
func (s *sieve) err() error {
	if s == nil || len(s.refusals) == 0 {
		return nil
	}
	return &RefusedError{s.refusals}
}

// rest returns a plan without what the kernel does not take. What is left out
// may still need the chains and sets that the plan removes.
func (s *sieve) rest(p *Plan) *Plan {
	if s == nil || len(s.refused) == 0 {
		return p
	}
	out := p.withoutRemovals()
	out.Changes = slices.DeleteFunc(out.Changes, func(c Change) bool {
		return c.Kind() == "element" && s.refused[s.owners.unitOf(&c)]
	})
	return out
}

// ask returns an error if the kernel refuses a plan of several transactions, so
// that nothing is prepared for what is refused later.
func (s *sieve) ask(k Kernel, p *Plan, generation uint32) error {
	if s == nil || len(p.phases()) == 1 {
		return nil
	}
	if err := k.Check(p.withoutRemovals(), generation); isRefusal(err) {
		return err
	}
	return nil // other errors come again
}

// sifts tells whether an error is one to look into.
func (s *sieve) sifts(err error) bool { return s != nil && isRefusal(err) }

// maxTrials is how many trials one search for what the kernel refuses may take.
// It does for dozens of Services among tens of thousands.
const maxTrials = 1000

// some is how many Services the kernel may refuse although they are more than
// half of those that change. What it does not take of most has another cause
// than what is in them.
const some = 16

var errManyTrials = errors.New("too many trials")

// sift finds what the kernel refuses of a plan, which failed. It returns the
// error if that has another cause, or if no search is possible now.
func (s *sieve) sift(k Kernel, p *Plan, generation uint32, failed error) error {
	if s.owners == nil {
		s.owners, s.refused = newOwners(s.routes), make(map[unit]bool)
	}
	t := newTrials(k, p.withoutRemovals(), generation, s.owners)
	err := t.search()
	switch {
	case err != nil && !isRefusal(err) && err != errManyTrials:
		return err
	case err != nil || len(t.found) == 0 || len(t.found) > max(some, len(t.units)/2):
		return failed
	}
	for u, err := range t.found {
		s.refused[t.units[u]] = true
		s.refusals = append(s.refusals, Refusal{t.units[u].service, err})
	}
	slices.SortFunc(s.refusals, func(a, b Refusal) int { return strings.Compare(a.String(), b.String()) })
	return nil
}

// trials look for the units of a plan that the kernel refuses.
type trials struct {
	kernel     Kernel
	plan       *Plan
	generation uint32
	owners     *owners
	left       int // trials

	units  []unit
	number map[unit]int
	of     []int // unit of each change of the plan, by number; -1: none

	found map[int]error // units that are refused by themselves
}

func newTrials(k Kernel, p *Plan, generation uint32, o *owners) *trials {
	t := &trials{
		kernel: k, plan: p, generation: generation, owners: o, left: maxTrials,
		number: make(map[unit]int), of: make([]int, len(p.Changes)), found: make(map[int]error),
	}
	for i := range p.Changes {
		t.of[i] = -1
		if c := &p.Changes[i]; c.Kind() == "element" {
			t.of[i] = t.numberOf(o.unitOf(c))
		}
	}
	return t
}

func (t *trials) numberOf(u unit) int {
	n, ok := t.number[u]
	if !ok {
		n = len(t.units)
		t.number[u] = n
		t.units = append(t.units, u)
	}
	return n
}

// search tries what all units need first: where the kernel refuses that, no
// unit is to blame.
func (t *trials) search() error {
	if err := t.try(nil); err != nil {
		return err
	}
	all := make([]int, len(t.units))
	for i := range all {
		all[i] = i
	}
	return t.searchIn(all, false)
}

// searchIn finds those of some units that the kernel refuses. One that it
// blames is tried by itself; the others are tried in halves, and those again if
// the kernel refuses them. A unit counts as refused only if it is by itself.
func (t *trials) searchIn(units []int, blamed bool) error {
	if len(units) == 0 {
		return nil
	}
	err := t.try(units)
	switch {
	case err == nil || !isRefusal(err):
		return err
	case len(units) == 1:
		t.found[units[0]] = err
		return nil
	}
	if suspect, ok := t.suspect(err); ok && !blamed && slices.Contains(units, suspect) {
		if err := t.searchIn([]int{suspect}, true); err != nil {
			return err
		}
		if t.found[suspect] != nil {
			units = slices.DeleteFunc(slices.Clone(units), func(u int) bool { return u == suspect })
		}
	}
	half := (len(units) + 1) / 2
	if err := t.searchIn(units[:half], false); err != nil {
		return err
	}
	return t.searchIn(units[half:], false)
}

// suspect returns the unit of the element that an error names.
func (t *trials) suspect(err error) (int, bool) {
	var commit *CommitError
	if !errors.As(err, &commit) || commit.Element == nil {
		return 0, false
	}
	n, ok := t.number[t.owners.unit(commit.Set, commit.Element.Key)]
	return n, ok
}

// try asks the kernel about what all units need and some of the units.
func (t *trials) try(units []int) error {
	if t.left--; t.left < 0 {
		return errManyTrials
	}
	in := make([]bool, len(t.units))
	for _, u := range units {
		in[u] = true
	}
	p := &Plan{services: t.plan.services}
	for i := range t.plan.Changes {
		if u := t.of[i]; u < 0 || in[u] {
			p.Changes = append(p.Changes, t.plan.Changes[i])
		}
	}
	if p.Empty() {
		return nil
	}
	return t.kernel.Check(p, t.generation)
}
