package model

import (
	"cmp"
	"maps"
	"slices"
)

// request is what a Service asks of a budget. It depends on the Service alone; the zero value asks for
// nothing.
type request interface {
	comparable
	age() int64
	alone() int                       // what the Service gets if there are no others
	cost() int                        // of that
	fit(left int) (granted, cost int) // what it gets of the rest of the budget
}

// allotment is the parts of a budget that Services get. The oldest Services get what they ask for.
type allotment[R request] struct {
	budget  int
	asking  map[ServiceName]R
	total   int                 // cost, if each Service were alone
	reduced map[ServiceName]int // what Services get that get less than they got alone
	stale   bool
}

func newAllotment[R request](budget int) allotment[R] {
	return allotment[R]{budget: budget, asking: make(map[ServiceName]R)}
}

func (b *allotment[R]) setRequest(name ServiceName, r R) {
	before := b.asking[name]
	if r == before {
		return
	}
	var nothing R
	b.total += r.cost() - before.cost()
	if b.asking[name] = r; r == nothing {
		delete(b.asking, name)
	}
	b.stale = b.stale || b.total > b.budget || len(b.reduced) > 0
}

// shareOf returns what a Service with a request gets.
func (b *allotment[R]) shareOf(name ServiceName, r R) int {
	if n, ok := b.reduced[name]; ok {
		return n
	}
	return r.alone()
}

// divide shares out the budget after changes, and returns the Services that get more or less than before.
func (b *allotment[R]) divide() (changed []ServiceName) {
	if !b.stale {
		return nil
	}
	before := b.reduced
	b.reduced, b.stale = b.chooseReduced(), false
	for name := range b.asking {
		was, had := before[name]
		is, has := b.reduced[name]
		if was != is || had != has {
			changed = append(changed, name)
		}
	}
	return changed
}

func (b *allotment[R]) chooseReduced() map[ServiceName]int {
	if b.total <= b.budget {
		return nil
	}
	all := slices.SortedFunc(maps.Keys(b.asking), func(x, y ServiceName) int {
		return cmp.Or(compareAge(b.asking[x].age(), b.asking[y].age()), x.Compare(y))
	})
	reduced, left := make(map[ServiceName]int), b.budget
	for _, name := range all {
		r := b.asking[name]
		granted, cost := r.fit(left)
		if left -= cost; granted < r.alone() {
			reduced[name] = granted
		}
	}
	return reduced
}

// askBudgets sets the requests of a Service, which is nil if it is gone.
func (r *Router) askBudgets(name ServiceName, s *Service) {
	var limits limitAsk
	var slots slotAsk
	if s != nil {
		limits, slots = s.limitAsk(), s.slotAsk(r.base.config.Scheduler)
	}
	r.clientLimits.setRequest(name, limits)
	r.slots.setRequest(name, slots)
}

// settleBudgets decides again about Services that get another share after changes.
func (r *Router) settleBudgets(touched map[Frontend]*Route) {
	for _, divide := range [...]func() []ServiceName{r.clientLimits.divide, r.slots.divide} {
		for _, name := range divide() {
			r.set(r.decideAgain(name), touched)
		}
	}
}
