package source

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// maxNamed is how many objects a warning names.
const maxNamed = 5

// collector puts the objects of all files together.
type collector struct {
	problems Errors
	warnings Errors
	skipped  map[string]int // objects of other kinds, by kind
	seen     map[identity]*object
	services map[model.ServiceName]bool // the proxied ones and the others
	snapshot model.Snapshot
	legacy   []*model.EndpointSlice // from Endpoints objects
}

func newCollector(problems, warnings Errors) *collector {
	return &collector{
		problems: problems,
		warnings: warnings,
		skipped:  make(map[string]int),
		seen:     make(map[identity]*object),
		services: make(map[model.ServiceName]bool),
	}
}

// add takes the objects of one path.
func (c *collector) add(arg argument, files []content) {
	known, total, empty := false, 0, false
	before := len(c.problems)
	for _, f := range files {
		for _, o := range f.objects {
			known = known || o.other == ""
			c.object(o)
		}
		total += len(f.objects)
		if len(f.objects) == 0 && f.err == nil {
			empty = true
			c.problems = append(c.problems, problem(f.name, f.emptiness()))
		}
		if f.err != nil {
			c.problems = append(c.problems, problem(f.name, f.err))
		}
	}
	if len(files) > 0 && !known && !empty && len(c.problems) == before {
		c.problems = append(c.problems, problem(arg.name, fmt.Errorf(
			"no %s in it, only %s of other kinds: %s", knownKinds, manifest.Count(total, "object"), howToFill)))
	}
}

func (f *content) emptiness() error {
	what := "it has comments or empty documents only"
	switch {
	case len(f.data) == 0:
		what = "the file is empty"
	case f.documents > 0:
		what = "its list has no items"
	}
	return fmt.Errorf("no objects: %s: %s", what, howToFill)
}

func (c *collector) object(o *object) {
	c.problems = append(c.problems, o.problems...)
	c.warnings = append(c.warnings, o.warnings...)
	if o.other != "" {
		c.skipped[o.other]++
		return
	}
	if o.id.name == "" {
		return
	}
	if first, dup := c.seen[o.id]; dup {
		c.problems = append(c.problems, &manifest.Error{Place: o.Place, Object: o.id.String(),
			Err: errors.New("is defined twice, first in " + first.String() + ": remove one of them")})
		return
	}
	c.seen[o.id] = o
	s := &c.snapshot
	switch o.id.kind {
	case "Service":
		c.services[model.ServiceName{Namespace: o.id.namespace, Name: o.id.name}] = true
	case "Endpoints":
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

// finish returns the input, or everything that is wrong.
func (c *collector) finish() (*Input, error) {
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	c.mergeLegacy()
	in := &Input{Snapshot: &c.snapshot}
	for _, w := range c.warnings[:min(len(c.warnings), manifest.MaxShown)] {
		in.Warnings = append(in.Warnings, w.Error())
	}
	if more := len(c.warnings) - manifest.MaxShown; more > 0 {
		in.Warnings = append(in.Warnings, "and "+manifest.Count(more, "more warning"))
	}
	in.Warnings = append(in.Warnings, c.skippedKinds()...)
	in.Warnings = append(in.Warnings, c.orphans()...)
	return in, nil
}

// mergeLegacy adds the Endpoints objects of Services that have no slices.
func (c *collector) mergeLegacy() {
	sliced := make(map[model.ServiceName]bool)
	for _, s := range c.snapshot.Slices {
		sliced[serviceOf(s)] = true
	}
	for _, s := range c.legacy {
		if !sliced[serviceOf(s)] {
			c.snapshot.Slices = append(c.snapshot.Slices, s)
		}
	}
}

func serviceOf(s *model.EndpointSlice) model.ServiceName {
	return model.ServiceName{Namespace: s.Namespace, Name: s.Service}
}

// skippedKinds returns for example
// "skipped 3 objects of other kinds: Deployment 2, Pod 1".
func (c *collector) skippedKinds() []string {
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
	return []string{fmt.Sprintf("skipped %s of other kinds: %s", manifest.Count(total, "object"), strings.Join(parts, ", "))}
}

// orphans reports endpoints whose Service is not in the input.
func (c *collector) orphans() []string {
	missing := make(map[model.ServiceName]bool)
	for _, s := range c.snapshot.Slices {
		if n := serviceOf(s); !c.services[n] {
			missing[n] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(missing), model.ServiceName.Compare)
	list := make([]string, 0, maxNamed+1)
	for _, n := range names[:min(len(names), maxNamed)] {
		list = append(list, terminal.Printable(n.String()))
	}
	if more := len(names) - maxNamed; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return []string{fmt.Sprintf("endpoints of %s that the input does not have are not used: %s",
		manifest.Count(len(names), "Service"), strings.Join(list, ", "))}
}
