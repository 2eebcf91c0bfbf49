package files

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	objects  []*object
	skipped  map[string]int // objects of other kinds, by kind
	seen     map[model.Object]*object
	snapshot model.Snapshot
	legacy   []*model.EndpointSlice // from Endpoints objects
}

func newCollector(problems, warnings manifest.Errors) *collector {
	return &collector{problems: problems, warnings: warnings, skipped: make(map[string]int)}
}

// add adds the objects of one path.
func (c *collector) add(arg argument, files []content) {
	usable, total, before := len(files) == 0, 0, len(c.problems)
	for _, f := range files {
		if c.seen == nil {
			c.seen = make(map[model.Object]*object, len(f.objects))
		}
		for _, o := range f.objects {
			usable = usable || o.other == ""
			c.object(o)
		}
		total += len(f.objects)
		if err := cmp.Or(f.err, f.emptiness()); err != nil {
			c.problems = append(c.problems, problem(f.name, err))
		}
	}
	if !usable && len(c.problems) == before {
		c.problems = append(c.problems, misspeltKinds(files)...)
	}
	if !usable && len(c.problems) == before {
		c.problems = append(c.problems, problem(arg.name, fmt.Errorf(
			"no %s in it, only %s of other kinds: %s", knownKinds, terminal.Count(total, "object"), howToFill)))
	}
}

// misspeltKinds returns the warnings about kinds, which are errors if there is
// nothing else.
func misspeltKinds(files []content) (out manifest.Errors) {
	for _, f := range files {
		for _, o := range f.objects {
			out = append(out, o.warnings...)
		}
	}
	return out
}

// emptiness returns an error if a file has no objects.
func (f *content) emptiness() error {
	what := "it has comments or empty documents only"
	switch {
	case len(f.objects) > 0:
		return nil
	case f.blank:
		what = "the file is empty"
	case f.documents > 0:
		what = "its list has no items"
	}
	return fmt.Errorf("no objects: %s: %s", what, howToFill)
}

func (c *collector) object(o *object) {
	c.problems = append(c.problems, o.problems...)
	c.objects = append(c.objects, o)
	switch {
	case o.other != "" && len(o.warnings) == 0: // else the kind is misspelt
		c.skipped[o.other]++
		return
	case o.other != "":
		return
	}
	if o.id.Name == "" {
		return
	}
	if !c.unique(o) {
		return
	}
	s := &c.snapshot
	if o.id.Kind == "Endpoints" {
		c.legacy = append(c.legacy, o.slices...)
		return
	}
	if o.service != nil {
		s.Services = append(s.Services, o.service)
	}
	if o.node != nil {
		s.Nodes = append(s.Nodes, o.node)
	}
	s.Slices = append(s.Slices, o.slices...)
	s.ServiceCIDRs = append(s.ServiceCIDRs, o.cidrs...)
}

// unique reports whether an object is the first of its name, or adds the problem.
func (c *collector) unique(o *object) bool {
	ids := []model.Object{o.id}
	if o.id.Kind == balance.Kind && o.service != nil {
		ids = append(ids, o.service.Name.Object())
		for _, s := range o.slices {
			ids = append(ids, model.Object{Kind: "EndpointSlice", Namespace: s.Namespace, Name: s.Name})
		}
	}
	for _, id := range ids {
		first, taken := c.seen[id]
		if !taken {
			continue
		}
		problem := fmt.Sprintf("has the name of %s in %s: rename one of them", first.id, first.Place)
		switch {
		case first.id == o.id:
			problem = "is defined twice, first in " + first.String() + ": remove one of them"
		case id != o.id && id.Kind == "EndpointSlice":
			problem = fmt.Sprintf("stands for %s, which is in %s, too: rename one of them", id, first.Place)
		case id.Kind == "EndpointSlice":
			problem = fmt.Sprintf("has the name of one for which %s in %s stands: rename one of them", first.id, first.Place)
		}
		c.problems = append(c.problems, &manifest.Error{Place: o.Place, Object: o.id.String(), Err: errors.New(problem)})
		return false
	}
	for _, id := range ids {
		c.seen[id] = o
	}
	return true
}

// finish returns the input, or all problems.
func (c *collector) finish() (*Input, error) {
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	c.mergeLegacy()
	orphans := c.review()
	in := &Input{
		Snapshot: &c.snapshot, Warnings: c.warnings, Objects: make(map[string]int),
		Places: make(map[model.Object]manifest.Place, len(c.snapshot.Services)),
	}
	for _, o := range c.objects {
		if o.other == "" {
			in.Objects[o.id.Kind]++
		}
		in.Warnings = append(in.Warnings, o.warnings...)
		in.Manifests = append(in.Manifests, o.manifests...)
		if o.service != nil {
			in.Places[o.id] = o.Place
		}
	}
	in.Warnings = slices.Concat(in.Warnings, orphans, c.skippedKinds())
	return in, nil
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
