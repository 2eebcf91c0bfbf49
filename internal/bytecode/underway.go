package bytecode

import (
	"cmp"
	"math/bits"
	"slices"

	"golang.org/x/sys/unix"
)

// Commit is a transaction while the kernel carries it out. For that, it switches to the other generation:
// from then on, a packet that enters a base chain runs its rules of afterwards, and each lookup finds the
// elements of afterwards. Those of intervals switch a moment later. A packet that has entered a base
// chain stays with the rules of before until it leaves the chain. Chains and sets that the transaction adds
// have neither rules nor elements before, and maps that it deletes none after.
type Commit struct {
	// Replaces reports whether a table ends, and another one of its name begins.
	Replaces bool
	// Redeclares reports whether a map of a table ends, and another one of its name begins.
	Redeclares bool
	// Exchanges reports whether a chain that is there before and after gets other rules.
	Exchanges     bool
	before, after *Ruleset
	twins         map[*set]*set     // of before, and of after: the same set of the other one
	newer, older  map[*chain]*chain // chains of before and after, with the same one of the other or nil
	rules         bool              // some change
	paths         map[uint8]*[hooks][]*chain
}

// NewCommit compares rules, which both must not change then, before and after a transaction.
func NewCommit(before, after *Ruleset) *Commit {
	c := &Commit{before: before, after: after, twins: make(map[*set]*set), newer: make(map[*chain]*chain), older: make(map[*chain]*chain)}
	for _, r := range []*Ruleset{before, after} {
		if r.compiled == nil {
			r.compile()
		}
	}
	for k, t := range before.tables {
		c.add(t, after.tables[k])
	}
	for _, t := range after.tables {
		for _, ch := range t.chains {
			if _, known := c.older[ch]; !known {
				c.older[ch], c.rules = nil, true
			}
		}
	}
	c.joinPaths()
	return c
}

// add finds what a table has before and after.
func (c *Commit) add(before, after *table) {
	if after == nil {
		after = &table{}
	} else if after.born != before.born {
		c.Replaces = true
	}
	for name, s := range before.sets {
		switch other := after.sets[name]; {
		case other == nil:
		case other.born == s.born:
			c.twins[s], c.twins[other] = other, s
		default:
			c.Redeclares = true
		}
	}
	for name, old := range before.chains {
		switch other := after.chains[name]; {
		case other != nil && other.born == old.born:
			c.newer[old], c.older[other] = other, old
			c.Exchanges = c.Exchanges || other.changed != old.changed
			c.rules = c.rules || c.Exchanges
		default:
			c.newer[old], c.rules = nil, true
		}
	}
}

// joinPaths finds the base chains of each hook. Of two with the same priority, the new one comes first.
func (c *Commit) joinPaths() {
	c.paths = make(map[uint8]*[hooks][]*chain)
	for family, all := range c.before.compiled {
		c.paths[family] = &[hooks][]*chain{}
		for hook := range all {
			list := slices.Clone(all[hook])
			for _, ch := range c.after.compiled[family][hook] {
				if c.older[ch] == nil {
					list = append(list, ch)
				}
			}
			slices.SortStableFunc(list, func(a, b *chain) int {
				return cmp.Or(cmp.Compare(a.place(), b.place()), cmp.Compare(a.priority, b.priority), cmp.Compare(b.born, a.born))
			})
			c.paths[family][hook] = list
		}
	}
}

// moments are how many of the things that differ a packet meets before the kernel switches rules and
// elements, and before it switches intervals.
type moments struct{ all, intervals int }

// FollowThrough calls yield with the ways of a packet of which a part is before the switch and another one
// after it. There are none if it meets nothing that differs. Intervals can switch together with all else, or
// behind each of those that differ.
func (m *Machine) FollowThrough(c *Commit, p Packet, yield func([]Result)) {
	m.Rules = c.before
	var inIntervals uint64
	for at := (moments{}); ; {
		r := runner{machine: m, packet: &p, commit: c, moments: at, path: c.paths[familyOf(p)]}
		results := r.follow()
		switch {
		case !r.differs || at.all >= r.differing:
			return // all is before the switch
		case at != moments{}:
			yield(results)
		}
		inIntervals = (inIntervals | r.inIntervals) &^ (1<<(at.intervals+1) - 1)
		if at.intervals = bits.TrailingZeros64(inIntervals); inIntervals == 0 {
			at = moments{at.all + 1, at.all + 1}
		}
	}
}

// isSwitched counts something that differs, and reports whether the packet meets it after the switch.
func (r *runner) isSwitched(s *run, isInterval bool) bool {
	s.differing++
	r.differing = max(r.differing, s.differing)
	if isInterval {
		r.inIntervals |= 1 << min(s.differing, 63)
		return s.differing > r.moments.intervals
	}
	return s.differing > r.moments.all
}

// enter returns the rules with which a packet runs a base chain; nil: it has none.
func (r *runner) enter(s *run, c *chain) *chain {
	if r.commit == nil {
		return c
	}
	before, after := c, c
	if newer, known := r.commit.newer[c]; known {
		after = newer
	} else {
		before = nil
	}
	r.differs = r.differs || r.commit.changes(c)
	if s.isNew = r.commit.rules && r.isSwitched(s, false); s.isNew {
		return after
	}
	return before
}

// changes reports whether a chain has other rules before and after.
func (c *Commit) changes(ch *chain) bool {
	other := cmp.Or(c.newer[ch], c.older[ch])
	return other == nil || other.changed != ch.changed
}

// inGeneration returns a chain as the packet meets it: without rules if the other generation has them.
func (r *runner) inGeneration(s *run, c *chain) *chain {
	if r.commit == nil || c == nil {
		return c
	}
	r.differs = r.differs || r.commit.changes(c)
	other, isOther := r.commit.newer[c]
	if !s.isNew {
		other, isOther = r.commit.older[c]
	}
	switch {
	case !isOther:
		return c
	case other == nil:
		return &chain{table: c.table, name: c.name}
	}
	return other
}

// findAt looks up a key in the elements of the moment.
func (r *runner) findAt(s *run, in *set, key []byte) *element {
	before, after := r.elements(s, in, key)
	if r.commit == nil || isSame(before, after) {
		return after
	}
	if r.differs = true; r.isSwitched(s, in.is(unix.NFT_SET_INTERVAL)) {
		return after
	}
	return before
}

// elements returns the elements for a key before and after the commit.
func (r *runner) elements(s *run, in *set, key []byte) (before, after *element) {
	found := in.find(key)
	if r.commit == nil {
		return found, found
	}
	switch other := r.commit.twins[in]; {
	case s.isNew && other == nil:
		return nil, found
	case s.isNew:
		return other.find(key), found
	case other != nil:
		return found, other.find(key)
	case !in.is(unix.NFT_SET_MAP):
		return found, found
	}
	return found, nil
}

func isSame(a, b *element) bool {
	if a == nil || b == nil {
		return a == b
	}
	return string(a.data) == string(b.data) && a.verdict.code == b.verdict.code && a.verdict.chain == b.verdict.chain
}
