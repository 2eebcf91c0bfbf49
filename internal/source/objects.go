package source

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objectReader turns documents into objects. It is not shared by goroutines.
type objectReader struct {
	file      string
	proxyName string // see Files
	types     map[reflect.Type]*structType
	lists     int // that were read
}

// chunk reads what stands between two document markers. Documents count from 1
// within the chunk.
func (r *objectReader) chunk(c chunk) (objects []*object, documents int) {
	docs, broken := parse(c)
	for i, doc := range docs {
		d := &decoder{base: doc.base, types: r.types}
		at := place{file: r.file, document: i + 1, line: doc.base + doc.root.Line}
		objects = append(objects, r.document(d, doc.root, at)...)
	}
	documents = len(docs)
	if broken != nil {
		documents++
		o := &object{place: place{file: r.file, document: documents, line: broken.line}}
		o.problems = []*Error{o.problem("", broken)}
		objects = append(objects, o)
	}
	return objects, documents
}

func (r *objectReader) document(d *decoder, n *yaml.Node, at place) []*object {
	head, problem := header(n, metav1.TypeMeta{})
	if problem != nil {
		return []*object{wrong(at, d, n, problem)}
	}
	if itemKind, isList := listed(head); isList {
		return r.list(d, n, at, head, itemKind)
	}
	return []*object{r.object(d, n, at, head)}
}

// wrong is an object that has nothing but a problem.
func wrong(at place, d *decoder, n *yaml.Node, f *FieldError) *object {
	o := &object{place: at}
	at.line = d.base + lineOf(n, f.Field)
	o.problems = []*Error{at.problem("", f)}
	return o
}

// header reads the type of an object. Items of a typed list may lack it and
// have that of the list.
func header(n *yaml.Node, defaults metav1.TypeMeta) (metav1.TypeMeta, *FieldError) {
	head := defaults
	if n.Kind != yaml.MappingNode {
		value := scalarText(n)
		if n.Kind == yaml.SequenceNode {
			value = "a list"
		}
		return head, &FieldError{Value: value,
			Problem: `is not a Kubernetes object: write fields such as "apiVersion: v1" and "kind: Service"`}
	}
	for _, f := range []struct {
		name string
		into *string
	}{{"kind", &head.Kind}, {"apiVersion", &head.APIVersion}} {
		_, value := lookup(n, f.name)
		if value == nil || isNull(unalias(value)) {
			continue
		}
		if value = unalias(value); value.Kind != yaml.ScalarNode {
			return head, &FieldError{Field: f.name, Problem: "is a list or an object: text belongs here"}
		}
		*f.into = value.Value
	}
	if head.Kind == "" {
		return head, &FieldError{Field: "kind", Problem: "missing: name the kind of the object, such as " + knownKinds}
	}
	return head, nil
}

// listed returns the kind of the items of a list: empty for v1 List.
func listed(head metav1.TypeMeta) (string, bool) {
	if head.Kind == "List" {
		return "", !foreign(head.APIVersion)
	}
	item, ok := strings.CutSuffix(head.Kind, "List")
	_, known := findKind(item)
	return item, ok && known && !foreign(head.APIVersion)
}

// list reads the items of a List or of a typed one such as ServiceList.
func (r *objectReader) list(d *decoder, n *yaml.Node, at place, head metav1.TypeMeta, itemKind string) []*object {
	r.lists++
	var items []*yaml.Node
	if key, value := lookup(n, "items"); key != nil {
		if value = unalias(value); value.Kind != yaml.SequenceNode && !isNull(value) {
			return []*object{wrong(at, d, n, &FieldError{Field: "items", Value: scalarText(value),
				Problem: `is not a list: put "- " in front of each object`})}
		}
		items = value.Content
	}
	out := r.listItself(d, n, at, head)
	defaults := itemDefaults(head, itemKind)
	for i, item := range items {
		item = unalias(item)
		here := at
		here.item, here.line = i+1, d.base+item.Line
		out = append(out, r.item(d, item, here, defaults))
	}
	return out
}

// itemDefaults returns the type that items of a list have unless they say
// otherwise.
func itemDefaults(head metav1.TypeMeta, itemKind string) metav1.TypeMeta {
	if itemKind == "" {
		return metav1.TypeMeta{}
	}
	return metav1.TypeMeta{Kind: itemKind, APIVersion: head.APIVersion}
}

// listItself reports what is wrong with the list around the items.
func (r *objectReader) listItself(d *decoder, n *yaml.Node, at place, head metav1.TypeMeta) []*object {
	k := kind{name: head.Kind, versions: []string{"v1"}}
	if of, ok := findKind(strings.TrimSuffix(head.Kind, "List")); ok {
		k.versions = of.versions
	}
	if problem := k.wrongVersion(head.APIVersion); problem != nil {
		return []*object{wrong(at, d, n, problem)}
	}
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta `json:"metadata"`
		Items           ignored         `json:"items"`
	}
	o := &object{place: at}
	o.report(d.decode(n, &list), head.Kind)
	if len(o.problems) == 0 {
		return nil
	}
	return []*object{o}
}

// ignored is a value that is read elsewhere.
type ignored struct{}

func (r *objectReader) item(d *decoder, n *yaml.Node, at place, defaults metav1.TypeMeta) *object {
	head, problem := header(n, defaults)
	if problem == nil && defaults.Kind != "" && head.Kind != defaults.Kind {
		problem = &FieldError{Field: "kind", Value: printValue(head.Kind),
			Problem: fmt.Sprintf("cannot stand in a %sList: use kind List for objects of several kinds", defaults.Kind)}
	}
	if problem != nil {
		return wrong(at, d, n, problem)
	}
	if _, isList := listed(head); isList {
		return wrong(at, d, n, &FieldError{Field: "kind", Value: printValue(head.Kind),
			Problem: "cannot stand inside a list: put its items into the outer one"})
	}
	return r.object(d, n, at, head)
}

func (r *objectReader) object(d *decoder, n *yaml.Node, at place, head metav1.TypeMeta) *object {
	k, known := findKind(head.Kind)
	if !known || foreign(head.APIVersion) {
		return &object{place: at, other: otherKind(head, known)}
	}
	if problem := k.wrongVersion(head.APIVersion); problem != nil {
		return wrong(at, d, n, problem)
	}
	o := &object{place: at, kind: k.name}
	k.read(r, d, n, o)
	title := o.title()
	o.report(o.mistakes, title)
	o.reportConversion(d, n, title)
	slices.SortStableFunc(o.problems, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
	return o
}

// otherKind names a kind that is skipped, with its group where the name alone
// would puzzle.
func otherKind(head metav1.TypeMeta, known bool) string {
	if known {
		return head.Kind + " of " + head.APIVersion
	}
	return head.Kind
}

func (k *kind) wrongVersion(version string) *FieldError {
	for _, v := range k.versions {
		if v == version {
			return nil
		}
	}
	f := &FieldError{Field: "apiVersion", Value: printValue(version),
		Problem: fmt.Sprintf("is not supported for kind %s: use %q", k.name, k.versions[0])}
	if version == "" {
		f.Value, f.Problem = "", fmt.Sprintf("missing: kind %s needs %q", k.name, k.versions[0])
	}
	return f
}

// title names the object for people, for example "Service default/web".
func (o *object) title() string {
	switch {
	case o.meta.Name == "":
		return o.kind
	case o.clusterScoped():
		return o.kind + " " + o.meta.Name
	}
	return o.kind + " " + namespace(&o.meta) + "/" + o.meta.Name
}

func (o *object) clusterScoped() bool {
	k, ok := findKind(o.kind)
	return ok && k.cluster
}

func (o *object) report(mistakes []mistake, title string) {
	for i := range mistakes {
		at := o.place
		at.line = mistakes[i].line
		o.problems = append(o.problems, at.problem(title, &mistakes[i].FieldError))
	}
}

// reportConversion adds what the conversion found, but not what only follows
// from a mistake: a field that could not be read is not missing.
func (o *object) reportConversion(d *decoder, n *yaml.Node, title string) {
	for _, f := range o.conversion {
		if o.follows(f) {
			continue
		}
		at := o.place
		at.line = d.base + lineOf(n, f.Field)
		if f.Warning {
			o.warnings = append(o.warnings, at.problem(title, f))
		} else {
			o.problems = append(o.problems, at.problem(title, f))
		}
	}
}

func (o *object) follows(f *FieldError) bool {
	for i := range o.mistakes {
		wrong := o.mistakes[i].Field
		if wrong == "" {
			return true // the object is incomplete
		}
		if rest, ok := strings.CutPrefix(f.Field, wrong); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
		if rest, ok := strings.CutPrefix(wrong, f.Field); ok && rest != "" && (rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}
