package files

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/yamltext"
)

const maxNamed = 5

type collector struct {
	problems manifest.Errors
	warnings manifest.Errors
	contents contents
	skipped  map[string]int // objects of other kinds, by kind
	seen     map[model.Object]*object
	snapshot model.Snapshot
	legacy   []*model.EndpointSlice // from Endpoints objects
	found    map[string]int         // objects of each kind
}

// group is the content of the files for which a path stands.
type group struct {
	name  string
	files contents
}

func collect(problems, warnings manifest.Errors, groups []group) *collector {
	c := &collector{
		problems: slices.Clip(problems), warnings: slices.Clip(warnings),
		seen: make(map[model.Object]*object), skipped: make(map[string]int), found: make(map[string]int),
	}
	for _, g := range groups {
		c.add(g)
	}
	return c
}

func (c *collector) add(g group) {
	usable, total, before := len(g.files) == 0, 0, len(c.problems)
	for i := range g.files {
		f := &g.files[i]
		for _, o := range f.objects {
			usable = usable || o.rareDetails().other == ""
			c.addObject(o)
		}
		total += len(f.objects)
		if err := cmp.Or(f.err, f.explainEmpty()); err != nil {
			c.problems = append(c.problems, fileProblem(f.name, err))
		}
	}
	c.contents = append(c.contents, g.files...)
	if !usable && len(c.problems) == before { // warnings about misspelt kinds are errors if there is nothing else
		for o := range g.files.all() {
			c.problems = append(c.problems, o.rareDetails().warnings...)
		}
	}
	if !usable && len(c.problems) == before {
		c.problems = append(c.problems, fileProblem(g.name, fmt.Errorf(
			"no %s in it, only %s of other kinds: %s", knownKinds, terminal.Count(total, "object"), howToFill)))
	}
}

type contents []content

func (c contents) all() iter.Seq[*object] {
	return func(yield func(*object) bool) {
		for i := range c {
			for _, o := range c[i].objects {
				if !yield(o) {
					return
				}
			}
		}
	}
}

func (c *content) explainEmpty() error {
	what := "it has comments or empty documents only"
	switch {
	case len(c.objects) > 0:
		return nil
	case c.empty:
		what = "the file is empty"
	case c.documents > 0:
		what = "its list has no items"
	}
	return fmt.Errorf("no objects: %s: %s", what, howToFill)
}

func (c *collector) addObject(o *object) {
	d := o.rareDetails()
	c.problems = append(c.problems, d.problems...)
	if d.other != "" {
		if len(d.warnings) == 0 { // else the kind is misspelt
			c.skipped[d.other]++
		}
		return
	}
	if o.kind != nil {
		c.found[o.kind.name]++
	}
	if o.id.Name == "" || !c.isUnique(o) {
		return
	}
	s := &c.snapshot
	if o.is("Endpoints") {
		c.legacy = append(c.legacy, o.slices...)
		return
	}
	if o.service != nil {
		s.Services = append(s.Services, o.service)
	}
	if d.node != nil {
		s.Nodes = append(s.Nodes, d.node)
	}
	s.Slices = append(s.Slices, o.slices...)
	s.ServiceCIDRs = append(s.ServiceCIDRs, d.cidrs...)
}

// isUnique reports whether an object is the first of its name, or adds the problem.
func (c *collector) isUnique(o *object) bool {
	names := []model.Object{o.id} // that no other object may have
	if o.is(balance.Kind) && o.service != nil {
		names = append(names, o.service.Name.Object())
		for _, s := range o.slices {
			names = append(names, model.Object{Kind: "EndpointSlice", Namespace: s.Namespace, Name: s.Name})
		}
	}
	for _, id := range names {
		if first, taken := c.seen[id]; taken {
			c.problems = append(c.problems, &manifest.Error{Place: o.Place, Object: o.id.String(), Err: errors.New(describeTwice(o, first, id))})
			return false
		}
	}
	for _, id := range names {
		c.seen[id] = o
	}
	return true
}

func describeTwice(o, first *object, id model.Object) string {
	switch {
	case first.id == o.id:
		return "is defined twice, first in " + first.Place.String() + ": remove one of them"
	case id != o.id && id.Kind == "EndpointSlice":
		return fmt.Sprintf("stands for %s, which is in %s, too: rename one of them", id, first.Place)
	case id.Kind == "EndpointSlice":
		return fmt.Sprintf("has the name of one for which %s in %s stands: rename one of them", first.id, first.Place)
	}
	return fmt.Sprintf("has the name of %s in %s: rename one of them", first.id, first.Place)
}

func (c *collector) finishInput() (*Input, error) {
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	c.seen = nil // which is large
	c.mergeLegacy()
	reviewed, whole := c.reviewObjects()
	in := &Input{Snapshot: &c.snapshot, Warnings: c.warnings, Objects: c.found, contents: c.contents}
	for o := range in.contents.all() {
		d := o.rareDetails()
		in.Warnings = append(append(in.Warnings, d.warnings...), reviewed[o]...)
		in.Manifests = append(in.Manifests, d.manifests...)
	}
	in.Warnings = slices.Concat(in.Warnings, whole, c.skippedKinds())
	return in, nil
}

// Places returns where the Services are defined.
func (in *Input) Places() map[model.Object]manifest.Place {
	places := make(map[model.Object]manifest.Place, len(in.Snapshot.Services))
	for o := range in.contents.all() {
		if o.service != nil {
			places[o.id] = o.Place
		}
	}
	return places
}

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

// skippedKinds returns for example "skipped 3 objects of other kinds: Deployment 2, Pod 1".
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

func aboutAll(format string, args ...any) manifest.Errors {
	return manifest.Errors{{Err: fmt.Errorf(format, args...)}}
}

// WriteManifests writes the objects of the input, which [Reader.Keep] has kept, as YAML
// documents: objects of Kubernetes as they are, and a Balance as the objects that it stands
// for, or as it is if Kubernetes has none. Reading them gives the same snapshot.
func (in *Input) WriteManifests(w io.Writer) error {
	var b bytes.Buffer
	for i, object := range in.Manifests {
		text, err := manifestText(object)
		if err != nil {
			return fmt.Errorf("write object: %w", err)
		}
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(text)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write objects: %w", err)
	}
	return nil
}

// setType sets kind and apiVersion, taken from the enclosing List if the item has none.
func setType(object json.RawMessage, t metav1.TypeMeta) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return object // not an object: an error
	}
	fields["kind"], _ = json.Marshal(t.Kind)
	fields["apiVersion"], _ = json.Marshal(t.APIVersion)
	text, _ := json.Marshal(fields)
	return text
}

func manifestText(object any) ([]byte, error) {
	if rest, ok := object.(*balance.Rest); ok {
		text, err := rest.Text()
		return []byte(text), err
	}
	given, isGiven := object.(json.RawMessage)
	if !isGiven {
		var err error
		if given, err = json.Marshal(object); err != nil {
			return nil, err
		}
	}
	var fields any
	if err := json.Unmarshal(given, &fields); err != nil {
		return nil, err
	}
	if !isGiven {
		withoutEmpty(fields)
	}
	switch {
	case yamltext.NeedsEscapes(fields):
		text, err := yamltext.Flow(fields)
		return []byte(text + "\n"), err
	case isGiven:
		// JSON is read with U+FFFD for each byte that is no UTF-8, and YAML has no such bytes.
		return yaml.JSONToYAML([]byte(string([]rune(string(given)))))
	}
	return yaml.Marshal(fields)
}

// withoutEmpty removes objects without fields, which the types of Kubernetes have for structs that are not set.
func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if m, ok := withoutEmpty(value).(map[string]any); ok && len(m) == 0 {
				delete(v, name)
			}
		}
	case []any:
		for _, item := range v {
			withoutEmpty(item)
		}
	}
	return v
}
