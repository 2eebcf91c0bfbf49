package files

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// content is the content of a file. The text in it is there only if it may be needed again: see [Reader.needsText].
type content struct {
	file
	sum       string // SHA-256 of the text, with an [Isolation]; empty: it cannot be read
	objects   []*object
	documents int // that are not empty
	err       error
	empty     bool // the file has no text
	// broken reports that the file has problems, or no documents.
	broken bool
}

// atATime is how many bytes of files are read before they are parsed: small files at the same time, and
// the objects of a large one occupy all processors.
const atATime = 1 << 20

// parseAll reads and parses files one after the other, so that few texts are in memory.
func (f *Reader) parseAll(files iter.Seq[file]) (out contents) {
	var some []file
	size := 0
	parse := func() {
		parsed := make([]content, len(some))
		parallel.Spread(len(some), 1, func(i, _ int) { parsed[i] = f.parse(some[i]) })
		out, some, size = append(out, parsed...), nil, 0
	}
	for in := range files {
		if some, size = append(some, in), size+len(in.data); size >= atATime {
			parse()
		}
	}
	parse()
	return out
}

// needsText reports whether a text is needed after it was parsed: it will be saved if the file is
// used, or the directory may turn out to have defaults.
func (f *Reader) needsText(c *content) bool {
	if known := f.inUse[c.name]; f.Isolation != nil && !c.broken && (known == nil || known.sum != c.sum) {
		return true
	}
	return !f.defaulted[directoryOf(c.name)] && slices.ContainsFunc(c.objects, (*object).isReady)
}

// atOnce is how many documents, or items of a List, a processor reads before it takes the next ones.
const atOnce = 64

// parse reads the objects of a file on all processors: nearly all of the time of Load goes here.
func (f *Reader) parse(in file) content {
	if in.err != nil {
		return content{file: in, err: in.err, broken: true}
	}
	docs, err := manifest.Split(in.name, in.data)
	parts := make([][]*object, len(docs))
	parallel.Spread(len(docs), atOnce, func(first, end int) {
		for i := first; i < end; i++ {
			parts[i] = f.readDocument(docs[i])
		}
	})
	out := content{file: in, objects: slices.Concat(parts...), documents: len(docs), err: err, empty: len(in.data) == 0}
	out.broken = err != nil || len(docs) == 0 || slices.ContainsFunc(out.objects, func(o *object) bool { return len(o.rareDetails().problems) > 0 })
	if f.Isolation != nil {
		out.sum = sumOf(in.data)
	}
	if !f.needsText(&out) {
		out.data = nil
	}
	return out
}

func (f *Reader) readDocument(d *manifest.Document) []*object {
	m, err := d.Parse()
	if err != nil {
		return []*object{failedObject(err)}
	}
	if m == nil {
		return nil
	}
	t, err := typeOf(m, metav1.TypeMeta{})
	if err != nil {
		return []*object{failedObject(err)}
	}
	itemKind, isList := listedKind(t)
	switch {
	case !isList && m.IsCut(): // its items have to be correct YAML, too
		return f.readDocument(d.Whole())
	case !isList:
		return []*object{f.readObject(m, t)}
	}
	n, err := m.Items()
	if err != nil {
		return []*object{failedObject(err)}
	}
	items, ok := f.readItems(m, n, itemKind, t)
	if !ok {
		return f.readDocument(d.Whole())
	}
	if problems := checkList(m, t); len(problems) > 0 {
		items = slices.Insert(items, 0, &object{Place: m.Place, rare: &details{problems: problems}})
	}
	return items
}

// readItems reads the n items of a list, which are of a kind unless that is empty; false: some cannot be
// read without the others.
func (f *Reader) readItems(m *manifest.Object, n int, kind string, list metav1.TypeMeta) ([]*object, bool) {
	out := make([]*object, n)
	var whole atomic.Bool
	parallel.Spread(n, atOnce, func(first, end int) {
		for i := first; i < end; i++ {
			switch item, err := m.ItemAt(i); {
			case err != nil:
				out[i] = failedObject(err)
			case item != nil:
				out[i] = f.readItem(item, kind, list)
			default:
				whole.Store(true)
			}
		}
	})
	return out, !whole.Load()
}

func failedObject(problem *manifest.Error) *object {
	return &object{Place: problem.Place, rare: &details{problems: manifest.Errors{problem}}}
}

func typeOf(m *manifest.Object, list metav1.TypeMeta) (metav1.TypeMeta, *manifest.Error) {
	if value := m.Shown(); value != "" {
		return list, m.Error(&manifest.FieldError{Value: value,
			Problem: `is not an object: write a Balance, as "nftproxy new" prints it, or a Kubernetes object with fields such as "apiVersion: v1" and "kind: Service"`})
	}
	kind, version := m.Type()
	t := metav1.TypeMeta{Kind: cmp.Or(kind, list.Kind), APIVersion: cmp.Or(version, list.APIVersion)}
	if t.Kind == "" {
		return t, m.Error(&manifest.FieldError{Field: "kind", Problem: "missing: name the kind of the object, such as " + knownKinds})
	}
	return t, nil
}

// listedKind returns the kind of the items of a list: empty for v1 List.
func listedKind(t metav1.TypeMeta) (string, bool) {
	item, ok := strings.CutSuffix(t.Kind, "List")
	_, known := findKind(item)
	return item, ok && (known || item == "") && !isForeign(t.APIVersion)
}

func checkList(m *manifest.Object, t metav1.TypeMeta) manifest.Errors {
	k := kind{name: t.Kind, versions: []string{"v1"}}
	if of, ok := findKind(strings.TrimSuffix(t.Kind, "List")); ok {
		k.versions = of.versions
	}
	if problem := k.wrongVersion(t.APIVersion); problem != nil {
		return manifest.Errors{m.Error(problem)}
	}
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta `json:"metadata"`
		Items           json.RawMessage `json:"items"`
	}
	problems := m.Decode(&list)
	for _, e := range problems {
		e.Object = t.Kind
	}
	return problems
}

func (f *Reader) readItem(m *manifest.Object, kind string, list metav1.TypeMeta) *object {
	defaults := metav1.TypeMeta{}
	if kind != "" {
		defaults = metav1.TypeMeta{Kind: kind, APIVersion: list.APIVersion}
	}
	t, err := typeOf(m, defaults)
	if err != nil {
		return failedObject(err)
	}
	problem := &manifest.FieldError{Field: "kind", Value: manifest.Quote(t.Kind)}
	if _, isList := listedKind(t); kind != "" && t.Kind != kind {
		problem.Problem = "cannot be in a " + list.Kind + ": use kind List for objects of several kinds"
	} else if isList {
		problem.Problem = "cannot be inside a list: put its items into the outer one"
	} else {
		return f.readObject(m, t)
	}
	return failedObject(m.Error(problem))
}

func (f *Reader) readObject(m *manifest.Object, t metav1.TypeMeta) *object {
	k, known := findKind(t.Kind)
	if !known || isForeign(t.APIVersion) {
		o := &object{Place: m.Place, rare: &details{other: t.Kind}}
		if known { // without the version the message would be confusing
			o.rare.other += " of " + t.APIVersion
		} else if meant := likelyKind(t.Kind, t.APIVersion); meant != "" {
			o.rare.warnings = manifest.Errors{m.Error(&manifest.FieldError{Field: "kind", Value: manifest.Quote(t.Kind), Warning: true,
				Problem: "is not read" + suggest.DidYouMean([]string{meant})})}
		}
		return o
	}
	if problem := k.wrongVersion(t.APIVersion); problem != nil {
		return failedObject(m.Error(problem))
	}
	o := &object{Place: m.Place, kind: k, id: model.Object{Kind: k.name}}
	meta, found := k.read(f, m, o)
	o.id.Name, o.fromServer = meta.GetName(), isFromServer(meta)
	if !k.cluster && o.id.Name != "" {
		o.id.Namespace = cmp.Or(meta.GetNamespace(), metav1.NamespaceDefault)
	}
	if k.versions[0] == balance.Version { // a kind of files alone
		if o.id.Name != "" {
			o.id = model.ServiceName{Namespace: o.id.Namespace, Name: o.id.Name}.BalanceObject()
			o.id.Kind = k.name
		}
	} else if f.Keep {
		o.editDetails().manifests = []any{setType(m.JSON(), t)}
	}
	if f.keepGiven {
		o.editDetails().given = setType(m.JSON(), t)
	}
	if o.rareDetails().waiting == nil { // else it is reported when it is resolved
		o.addFindings(m, found)
		o.locateFields(m)
	}
	return o
}

func (o *object) locateFields(m *manifest.Object) {
	ports, link := "ports", "metadata.labels["+discoveryv1.LabelServiceName+"]"
	switch {
	case o.id.Kind == balance.Kind:
		return
	case o.service != nil:
		ports, link = "spec.ports", "spec.selector"
	case o.id.Kind != "EndpointSlice" || len(o.slices) == 0:
		return
	}
	o.linkLine, o.portLines = m.FieldLine(link), m.EntryLines(ports)
}

// addFindings adds the findings of the conversion to the problems of decoding, but not findings
// that only follow from these: a field that could not be read is not missing.
func (o *object) addFindings(m *manifest.Object, found []*manifest.FieldError) {
	unread := o.rareDetails().problems
	for _, f := range found {
		follows := func(e *manifest.Error) bool { // from the field itself, or one around it or in it
			field := e.Err.(*manifest.FieldError).Field
			return field == "" || isWithin(f.Field, field) || isWithin(field, f.Field)
		}
		switch {
		case slices.ContainsFunc(unread, follows):
		case f.Warning:
			o.editDetails().warnings = append(o.editDetails().warnings, m.Error(f))
		default:
			o.editDetails().problems = append(o.editDetails().problems, m.Error(f))
		}
	}
	d := o.rareDetails()
	for _, e := range slices.Concat(d.problems, d.warnings) {
		e.Object = o.id.String()
	}
	slices.SortStableFunc(d.problems, func(a, b *manifest.Error) int { return cmp.Compare(a.Line, b.Line) })
}

func isWithin(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func (k *kind) wrongVersion(version string) *manifest.FieldError {
	switch {
	case slices.Contains(k.versions, version):
		return nil
	case version == "":
		return &manifest.FieldError{Field: "apiVersion", Problem: fmt.Sprintf("missing: kind %s needs %q", k.name, k.versions[0])}
	}
	return &manifest.FieldError{Field: "apiVersion", Value: manifest.Quote(version),
		Problem: fmt.Sprintf("is not supported for kind %s: use %q", k.name, k.versions[0])}
}

// object is one object of a file, converted. Once it is read, it does not change. A file may have
// hundreds of thousands, so the fields that few of them need are apart.
type object struct {
	manifest.Place
	id   model.Object // without a name, only the kind is known
	kind *kind        // nil: none that is read

	service *model.Service
	slices  []*model.EndpointSlice
	rare    *details // nil: it has none

	// fromServer is set if the object was read from an API server, and selects if the Service has a selector.
	fromServer, selects bool
	// portLines are the lines of the ports, and linkLine the one of the selector of a Service or of the
	// label of a slice, for warnings after all objects are known; zero: unknown.
	portLines []int
	linkLine  int
}

type details struct {
	other string // the kind of an object that is skipped
	node  *model.Node
	cidrs []netip.Prefix

	pool     *balance.Pool
	defaults *balance.Defaults
	waiting  *waiting  // a Balance that depends on other objects
	with     []*object // the ones that it was resolved with

	// manifests are the objects of Kubernetes that it consists of, and given is the object as it is
	// written, if these are kept.
	manifests []any
	given     json.RawMessage

	problems manifest.Errors
	warnings manifest.Errors // about the object alone; the review adds others
}

// rareDetails returns the fields that few objects need, to be read.
func (o *object) rareDetails() details {
	if o.rare == nil {
		return details{}
	}
	return *o.rare
}

// editDetails returns the same, to be changed while the object is read.
func (o *object) editDetails() *details {
	if o.rare == nil {
		o.rare = new(details)
	}
	return o.rare
}

func (o *object) addProblems(problems manifest.Errors) {
	if len(problems) > 0 {
		o.editDetails().problems = append(o.editDetails().problems, problems...)
	}
}

func (o *object) is(kind string) bool { return o.kind != nil && o.kind.name == kind }

// serviceOf returns the name of the Service to which the slices of an object belong.
func (o *object) serviceOf() (name model.ServiceName, ok bool) {
	if len(o.slices) == 0 {
		return name, false
	}
	return o.slices[0].ServiceName(), true
}
