package files

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// maxNamed is how many objects a warning names.
const maxNamed = 5

// collector collects the objects of all files.
type collector struct {
	problems manifest.Errors
	warnings manifest.Errors
	contents []content
	skipped  map[string]int // objects of other kinds, by kind
	seen     identities
	snapshot model.Snapshot
	legacy   []*model.EndpointSlice // from Endpoints objects
	found    []int                  // objects of each of the kinds
}

// group is the content of the files for which an argument stands.
type group struct {
	argument
	files []content
}

// collect returns the objects of all groups, with the problems that are known before.
func collect(problems, warnings manifest.Errors, groups []group) *collector {
	c := collectOnce(problems, warnings, groups, identities{})
	if c.seen.doubt { // nearly always, two objects have one name
		c = collectOnce(problems, warnings, groups, identities{exact: make(map[model.Object]located)})
	}
	c.seen = identities{}
	return c
}

func collectOnce(problems, warnings manifest.Errors, groups []group, seen identities) *collector {
	c := &collector{
		problems: slices.Clip(problems), warnings: slices.Clip(warnings), seen: seen,
		skipped: make(map[string]int), found: make([]int, len(kinds)),
	}
	for _, g := range groups {
		c.add(g)
	}
	return c
}

// located is an object and the place of its part.
type located struct {
	*object
	at manifest.Place
}

// place returns where the object is.
func (l located) place() manifest.Place {
	l.at.Line += int(l.line)
	return l.at
}

// identities are the objects that a collector has seen.
type identities struct {
	seed   maphash.Seed
	hashes map[uint64]struct{} // of their references
	doubt  bool                // two hashes were the same
	// exact has the references themselves; nil: hashes suffice, which take a fraction of
	// the memory.
	exact map[model.Object]located
}

// again notes a reference, and reports whether its hash is known.
func (s *identities) again(id model.Object) bool {
	if s.hashes == nil {
		s.seed, s.hashes = maphash.MakeSeed(), make(map[uint64]struct{})
	}
	hash := uint64(0)
	for _, text := range [...]string{id.Kind, id.Namespace, id.Name} {
		hash = bits.RotateLeft64(hash, 21) ^ maphash.String(s.seed, text)
	}
	_, known := s.hashes[hash]
	s.hashes[hash] = struct{}{}
	return known
}

// add adds the objects of one path.
func (c *collector) add(g group) {
	usable, total, before := len(g.files) == 0, 0, len(c.problems)
	for i := range g.files {
		f := &g.files[i]
		of := 0
		f.each(func(o *object, at manifest.Place) {
			of++
			usable = usable || o.details().other == ""
			c.object(located{o, at})
		})
		total += of
		if err := cmp.Or(f.err, f.emptiness(of)); err != nil {
			c.problems = append(c.problems, problem(f.name, err))
		}
	}
	c.contents = append(c.contents, g.files...)
	if !usable && len(c.problems) == before {
		c.problems = append(c.problems, misspeltKinds(g.files)...)
	}
	if !usable && len(c.problems) == before {
		c.problems = append(c.problems, problem(g.name, fmt.Errorf(
			"no %s in it, only %s of other kinds: %s", knownKinds, terminal.Count(total, "object"), howToFill)))
	}
}

// each calls f with each object.
func (c *collector) each(f func(located)) {
	for i := range c.contents {
		c.contents[i].each(func(o *object, at manifest.Place) { f(located{o, at}) })
	}
}

// misspeltKinds returns the warnings about kinds, which are errors if there is
// nothing else.
func misspeltKinds(files []content) (out manifest.Errors) {
	for i := range files {
		files[i].each(func(o *object, at manifest.Place) { out = append(out, o.details().warnings.movedTo(at).all...) })
	}
	return out
}

// emptiness returns an error if a file has no objects.
func (c *content) emptiness(objects int) error {
	what := "it has comments or empty documents only"
	switch {
	case objects > 0:
		return nil
	case c.blank:
		what = "the file is empty"
	case len(c.docs.all) > 0:
		what = "its list has no items"
	}
	return fmt.Errorf("no objects: %s: %s", what, howToFill)
}

func (c *collector) object(o located) {
	d := o.details()
	c.problems = append(c.problems, o.ownProblems()...)
	switch {
	case d.other != "" && len(d.warnings.all) == 0: // else the kind is misspelt
		c.skipped[d.other]++
		return
	case d.other != "":
		return
	}
	if o.kind >= 0 {
		c.found[o.kind]++
	}
	if o.id().Name == "" || !c.unique(o) {
		return
	}
	s := &c.snapshot
	if o.is("Endpoints") {
		c.legacy = append(c.legacy, o.slices()...)
		return
	}
	if o.service != nil {
		s.Services = append(s.Services, o.service)
	}
	if d.node != nil {
		s.Nodes = append(s.Nodes, d.node)
	}
	s.Slices = append(s.Slices, o.slices()...)
	s.ServiceCIDRs = append(s.ServiceCIDRs, d.cidrs...)
}

// eachName calls f with the references that no other object may have, until it returns false.
func (o *object) eachName(f func(model.Object) bool) {
	if !f(o.id()) || !o.is(balance.Kind) || o.service == nil || !f(o.service.Name.Object()) {
		return
	}
	for _, s := range o.slices() {
		if !f(model.Object{Kind: "EndpointSlice", Namespace: s.Namespace, Name: s.Name}) {
			return
		}
	}
}

// unique reports whether an object is the first of its name, or adds the problem.
func (c *collector) unique(o located) bool {
	if c.seen.exact == nil {
		o.eachName(func(id model.Object) bool {
			c.seen.doubt = c.seen.again(id) || c.seen.doubt
			return true
		})
		return true
	}
	problem := ""
	o.eachName(func(id model.Object) bool {
		if first, taken := c.seen.exact[id]; taken {
			problem = twice(o, first, id)
		}
		return problem == ""
	})
	if problem != "" {
		c.problems = append(c.problems, &manifest.Error{Place: o.place(), Object: o.id().String(), Err: errors.New(problem)})
		return false
	}
	o.eachName(func(id model.Object) bool {
		c.seen.exact[id] = o
		return true
	})
	return true
}

// twice returns the problem with an object that has a reference of an earlier one.
func twice(o, first located, id model.Object) string {
	switch {
	case first.id() == o.id():
		return "is defined twice, first in " + first.place().String() + ": remove one of them"
	case id != o.id() && id.Kind == "EndpointSlice":
		return fmt.Sprintf("stands for %s, which is in %s, too: rename one of them", id, first.place())
	case id.Kind == "EndpointSlice":
		return fmt.Sprintf("has the name of one for which %s in %s stands: rename one of them", first.id(), first.place())
	}
	return fmt.Sprintf("has the name of %s in %s: rename one of them", first.id(), first.place())
}

// finish returns the input, or all problems.
func (c *collector) finish() (*loaded, error) {
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	c.mergeLegacy()
	reviewed, orphans, alone := c.review()
	in := &Input{Snapshot: &c.snapshot, Warnings: c.warnings, Objects: make(map[string]int), contents: c.contents}
	x := &index{reviewed: reviewed, skipped: c.skippedKinds(), whole: alone > 0 || len(c.legacy) > 0}
	for i := range c.contents {
		x.files = append(x.files, c.contents[i].name)
	}
	for i, n := range c.found {
		if n > 0 {
			in.Objects[kinds[i].name] = n
		}
	}
	c.each(func(o located) {
		if o.rare != nil {
			in.Warnings = append(in.Warnings, o.rare.warnings.movedTo(o.at).all...)
			in.Manifests = append(in.Manifests, o.rare.manifests...)
		}
		if len(reviewed) > 0 {
			in.Warnings = append(in.Warnings, reviewed[o.object].all...)
		}
	})
	in.Warnings = slices.Concat(in.Warnings, orphans, x.skipped)
	return &loaded{Input: in, index: x}, nil
}

// Places returns where the Services are defined.
func (in *Input) Places() map[model.Object]manifest.Place {
	places := make(map[model.Object]manifest.Place, len(in.Snapshot.Services))
	for i := range in.contents {
		in.contents[i].each(func(o *object, at manifest.Place) {
			if o.service != nil {
				places[o.id()] = located{o, at}.place()
			}
		})
	}
	return places
}

// mergeLegacy adds the Endpoints objects of Services that have no slices.
func (c *collector) mergeLegacy() {
	if len(c.legacy) == 0 {
		return
	}
	sliced := make(map[model.ServiceName]bool)
	for _, s := range c.snapshot.Slices {
		sliced[s.ServiceName()] = true
	}
	for _, s := range c.legacy {
		if !sliced[s.ServiceName()] {
			c.snapshot.Slices = append(c.snapshot.Slices, s)
		}
	}
}

// skippedKinds returns for example
// "skipped 3 objects of other kinds: Deployment 2, Pod 1".
func (c *collector) skippedKinds() manifest.Errors {
	if len(c.skipped) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(c.skipped), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.skipped[b], c.skipped[a]), cmp.Compare(a, b))
	})
	total, parts := 0, make([]string, 0, len(names))
	for _, n := range names {
		total += c.skipped[n]
		parts = append(parts, fmt.Sprintf("%s %d", terminal.Printable(n), c.skipped[n]))
	}
	skipped := aboutAll("skipped %s of other kinds: %s", terminal.Count(total, "object"), strings.Join(parts, ", "))
	skipped[0].Note = true
	return skipped
}

// aboutAll returns a warning about the whole input.
func aboutAll(format string, args ...any) manifest.Errors {
	return manifest.Errors{{Err: fmt.Errorf(format, args...)}}
}
