package changes

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Action is the kind of change of a Service on this node.
type Action string

const (
	Added   Action = "add"
	Changed Action = "change"
	Removed Action = "delete"
)

// Service is the change of one Service on this node.
type Service struct {
	Name    model.ServiceName
	Words   words.Vocabulary // for the Service
	Action  Action
	Details []Detail // in a fixed order
	// Elements is how many elements of the rules change, if they were counted.
	Elements int
}

// Kind is the subject of a detail: one of these, or a setting ([setting.Setting.Kind]).
type Kind string

const (
	KindFrontends Kind = "frontends"
	KindVerdict   Kind = "verdict"
	KindEndpoints Kind = "endpoints"
	KindWeights   Kind = "weights"
	KindPolicy    Kind = "policy"
	KindMoved     Kind = "moved" // a frontend belongs to another Service
	KindRules     Kind = "rules" // nothing that clients notice
)

// Detail is one thing that changes, in words and as data.
type Detail struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"` // for example "affinity 600 s → 300 s"
	// Old and New are values, Added and Removed members of a list.
	Old     string   `json:"old,omitempty"`
	New     string   `json:"new,omitempty"`
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// Connections says what happens to established connections; empty: nothing.
	Connections string `json:"connections,omitempty"`
}

type comparison struct {
	pairs                   map[model.ServiceName][]pair
	total                   map[model.ServiceName]*sides
	stateBefore, stateAfter stateOf
	edits                   *edits
	// isBalance says what Services come from, as far as it is known.
	isBalance map[model.ServiceName]bool
}

type sides struct{ before, after int }

func newComparison() *comparison {
	none := func(model.PortName, address) state { return state{} }
	return &comparison{pairs: make(map[model.ServiceName][]pair), total: make(map[model.ServiceName]*sides), stateBefore: none, stateAfter: none, edits: new(edits), isBalance: make(map[model.ServiceName]bool)}
}

// count adds to the numbers of all frontends of a Service.
func (c *comparison) count(name model.ServiceName, before, after int) {
	n := c.total[name]
	if n == nil {
		n = new(sides)
		c.total[name] = n
	}
	n.before += before
	n.after += after
}

func (c *comparison) wordsOf(name model.ServiceName) words.Vocabulary {
	return words.Of(c.isBalance[name])
}

// add adds a frontend that may have changed, to each Service that has it.
func (c *comparison) add(p pair) {
	for _, f := range []*frontend{p.before, p.after} {
		if f == nil {
			continue
		}
		name := f.Port.Service
		f.in = c.wordsOf(name)
		if f == p.before || p.before == nil || p.before.Port.Service != name {
			c.pairs[name] = append(c.pairs[name], p)
		}
	}
}

// listServices returns the Services with details, sorted by name.
func (c *comparison) listServices() []Service {
	for name := range c.edits.changed { // perhaps without effect on a frontend
		if _, ok := c.pairs[name]; !ok {
			c.pairs[name] = nil
		}
	}
	out := c.describeLone()
	for name, pairs := range c.pairs {
		s := &subject{comparison: c, name: name, in: c.wordsOf(name)}
		slices.SortFunc(pairs, func(a, b pair) int { return a.eitherSide().Compare(b.eitherSide().Frontend) })
		for _, p := range pairs {
			s.sort(p)
		}
		s.pairRanges()
		if details := s.describeService(); len(details) > 0 {
			out = append(out, Service{Name: name, Words: s.in, Action: s.actionOf(), Details: details})
		}
	}
	slices.SortFunc(out, func(a, b Service) int { return a.Name.Compare(b.Name) })
	return out
}

func (p pair) eitherSide() *frontend { return cmp.Or(p.after, p.before) }

type subject struct {
	*comparison
	name          model.ServiceName
	in            words.Vocabulary
	added         []*frontend
	removed       []*frontend
	stays         []pair // frontends that the Service has before and after
	gained, ceded []pair // frontends that another Service had, or has
}

func (s *subject) sort(p pair) {
	switch {
	case p.before == nil:
		s.added = append(s.added, p.after)
	case p.after == nil:
		s.removed = append(s.removed, p.before)
	case p.before.Port.Service == p.after.Port.Service:
		s.stays = append(s.stays, p)
	case p.after.Port.Service == s.name:
		s.gained = append(s.gained, p)
	default:
		s.ceded = append(s.ceded, p)
	}
}

// pairRanges makes one range of ports that goes, and one with ports of it that comes, a
// range that changes.
func (s *subject) pairRanges() {
	overlapping := func(all []*frontend, f *frontend) (found []*frontend) {
		for _, o := range all {
			if o.Overlaps(f.Frontend) {
				found = append(found, o)
			}
		}
		return found
	}
	paired := make(map[*frontend]bool)
	for _, f := range s.removed {
		now := overlapping(s.added, f)
		if len(now) == 1 && len(overlapping(s.removed, now[0])) == 1 {
			s.stays = append(s.stays, pair{f, now[0]})
			paired[f], paired[now[0]] = true, true
		}
	}
	isPaired := func(f *frontend) bool { return paired[f] }
	s.added, s.removed = slices.DeleteFunc(s.added, isPaired), slices.DeleteFunc(s.removed, isPaired)
}

func (s *subject) actionOf() Action {
	switch n := s.total[s.name]; {
	case n == nil: // it has no frontends, before or after
		return Changed
	case n.before == 0:
		return Added
	case n.after == 0:
		return Removed
	}
	return Changed
}
