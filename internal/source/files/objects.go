package files

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/suggest"
)

// object is one object of a file, converted.
type object struct {
	manifest.Place
	id      model.Object // without a name, only the kind is known
	other   string       // the kind of an object that is skipped
	service *model.Service
	slices  []*model.EndpointSlice
	node    *model.Node
	// manifests are the objects of Kubernetes that it consists of, if these are kept.
	manifests []any
	given     json.RawMessage // the object, if these are kept
	cidrs     []netip.Prefix
	problems  manifest.Errors
	warnings  manifest.Errors
	found     int // warnings of the object alone; the review adds others
	// fromServer is set if the object was read from an API server, and selects if the
	// Service has a selector.
	fromServer, selects bool
	// portLines are the lines of the ports, and linkLine is the line of the selector of a
	// Service or of the label of a slice, for warnings after all objects are known.
	portLines []int
	linkLine  int
}

// content is the content of a file.
type content struct {
	file
	documents int  // that are not empty
	blank     bool // the file is empty
	objects   []*object
	err       error
}

// parse reads the objects of a file on all processors: nearly all of the time of
// Load goes here.
func (f *Reader) parse(in file) content {
	if in = in.opened(); in.err != nil {
		return content{file: in, err: in.err}
	}
	docs, err := manifest.Split(in.name, in.data)
	parts := make([]part, len(docs))
	for i, d := range docs {
		if parts[i].place = d.Place; f.follows {
			parts[i].sum = d.Sum()
		}
	}
	objects := f.known.objects(listKey{file: in.name}, parts, func(i int) []*object { return f.document(docs[i]) })
	out := content{in, len(docs), len(in.data) == 0, objects, err}
	if in.path != "" {
		out.data = nil
	}
	return out
}

func (f *Reader) parseAll(files []file) []content {
	out := make([]content, len(files))
	parallel(len(files), func(i int) { out[i] = f.parse(files[i]) })
	return out
}

// parallel calls f for each number below n.
func parallel(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// document reads an object, or the items of a List or of a typed one such as
// ServiceList.
func (f *Reader) document(d *manifest.Document) []*object {
	m, err := d.Parse()
	if err != nil {
		return []*object{failed(err)}
	}
	if m == nil {
		return nil
	}
	t, err := typeOf(m, metav1.TypeMeta{})
	if err != nil {
		return []*object{failed(err)}
	}
	itemKind, isList := listed(t)
	switch {
	case !isList && m.IsCut(): // its items have to be correct YAML, too
		return f.document(d.Whole())
	case !isList:
		return []*object{f.object(m, t)}
	}
	n, err := m.Items()
	if err != nil {
		return []*object{failed(err)}
	}
	out := f.items(m, n, itemKind, t)
	if slices.Contains(out, nil) {
		return f.document(d.Whole())
	}
	if problems := checkList(m, t); len(problems) > 0 {
		out = slices.Insert(out, 0, &object{Place: m.Place, problems: problems})
	}
	return out
}

// items reads the n items of a list; nil for those that cannot be read without the others.
func (f *Reader) items(m *manifest.Object, n int, kind string, list metav1.TypeMeta) []*object {
	parts := make([]part, n)
	for i := range parts {
		if parts[i].place = m.ItemPlace(i); f.follows {
			parts[i].sum = m.ItemSum(i, list.Kind, list.APIVersion)
		}
	}
	return f.known.objects(listKey{m.File, m.Document}, parts, func(i int) []*object {
		switch item, err := m.ItemAt(i); {
		case err != nil:
			return []*object{failed(err)}
		case item != nil:
			return []*object{f.item(item, kind, list)}
		}
		return []*object{nil}
	})
}

// failed returns an object that has only a problem.
func failed(problem *manifest.Error) *object {
	return &object{Place: problem.Place, problems: manifest.Errors{problem}}
}

// typeOf reads the type of an object, by default from the typed list around it.
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

// listed returns the kind of the items of a list: empty for v1 List.
func listed(t metav1.TypeMeta) (string, bool) {
	item, ok := strings.CutSuffix(t.Kind, "List")
	_, known := findKind(item)
	return item, ok && (known || item == "") && !foreign(t.APIVersion)
}

// checkList returns the problems of a list without its items.
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

// item reads an item of a list; kind is empty if the list is not typed.
func (f *Reader) item(m *manifest.Object, kind string, list metav1.TypeMeta) *object {
	defaults := metav1.TypeMeta{}
	if kind != "" {
		defaults = metav1.TypeMeta{Kind: kind, APIVersion: list.APIVersion}
	}
	t, err := typeOf(m, defaults)
	if err != nil {
		return failed(err)
	}
	problem := &manifest.FieldError{Field: "kind", Value: manifest.Quote(t.Kind)}
	if _, isList := listed(t); kind != "" && t.Kind != kind {
		problem.Problem = "cannot be in a " + list.Kind + ": use kind List for objects of several kinds"
	} else if isList {
		problem.Problem = "cannot be inside a list: put its items into the outer one"
	} else {
		return f.object(m, t)
	}
	return failed(m.Error(problem))
}

func (f *Reader) object(m *manifest.Object, t metav1.TypeMeta) *object {
	k, known := findKind(t.Kind)
	if !known || foreign(t.APIVersion) {
		o := &object{Place: m.Place, other: t.Kind}
		if known { // without the version the message would be confusing
			o.other += " of " + t.APIVersion
		} else if meant := misspelt(t.Kind, t.APIVersion); meant != "" {
			o.warnings = manifest.Errors{m.Error(&manifest.FieldError{Field: "kind", Value: manifest.Quote(t.Kind), Warning: true,
				Problem: "is not read" + suggest.DidYouMean([]string{meant})})}
			o.found = 1
		}
		return o
	}
	if problem := k.wrongVersion(t.APIVersion); problem != nil {
		return failed(m.Error(problem))
	}
	o := &object{Place: m.Place, id: model.Object{Kind: k.name}}
	meta, found := k.read(f, m, o)
	o.id.Name, o.fromServer = meta.GetName(), isFromServer(meta)
	if !k.cluster && o.id.Name != "" {
		o.id.Namespace = cmp.Or(meta.GetNamespace(), metav1.NamespaceDefault)
	}
	if k.name == balance.Kind {
		o.id = model.ServiceName{Namespace: o.id.Namespace, Name: o.id.Name}.BalanceObject()
	} else if f.Keep {
		o.manifests = []any{typed(m.JSON(), t)}
	}
	if f.keepGiven {
		o.given = typed(m.JSON(), t)
	}
	o.report(m, found)
	o.locate(m)
	o.found = len(o.warnings)
	return o
}

// locate notes the lines of the fields that link a Service and its slices.
func (o *object) locate(m *manifest.Object) {
	ports, format, link := 0, "ports[%d]", "metadata.labels["+discoveryv1.LabelServiceName+"]"
	switch {
	case o.id.Kind == balance.Kind:
		return
	case o.service != nil:
		ports, format, link = len(o.service.Ports), "spec.ports[%d]", "spec.selector"
	case o.id.Kind == "EndpointSlice" && len(o.slices) > 0:
		ports = len(o.slices[0].Ports)
	default:
		return
	}
	o.linkLine = m.FieldLine(link)
	for i := range ports {
		o.portLines = append(o.portLines, m.FieldLine(fmt.Sprintf(format, i)))
	}
}

// report adds the findings of the conversion to the problems of decoding, but not findings
// that only follow from these: a field that could not be read is not missing.
func (o *object) report(m *manifest.Object, found []*manifest.FieldError) {
	unread := o.problems
	for _, f := range found {
		switch {
		case slices.ContainsFunc(unread, func(e *manifest.Error) bool { return follows(f.Field, e.Err.(*manifest.FieldError).Field) }):
		case f.Warning:
			o.warnings = append(o.warnings, m.Error(f))
		default:
			o.problems = append(o.problems, m.Error(f))
		}
	}
	for _, e := range slices.Concat(o.problems, o.warnings) {
		e.Object = strings.TrimSpace(o.id.String())
	}
	slices.SortStableFunc(o.problems, func(a, b *manifest.Error) int { return cmp.Compare(a.Line, b.Line) })
}

// follows reports whether a problem with a field can come from another field that
// could not be read: the field itself, or one around it or in it.
func follows(field, unread string) bool {
	return unread == "" || within(field, unread) || within(unread, field)
}

func within(inner, outer string) bool {
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
