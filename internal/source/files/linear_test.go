package files

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/nftproxy/nftproxy/internal/source/balance"
)

// Sizes of the walk. A quadratic cost grows by the square of their ratio, 64, and an API server
// accepts about twice the larger one: 1.5 MB.
const (
	walkedFew  = 500
	walkedMany = 8 * walkedFew
)

// The larger text may cost twice as much as the smaller one read as often as its size fits: caches are
// smaller than the larger text. A cost below the floor says nothing. A busy machine makes figures larger,
// and never smaller; it disturbs both sides alike, since each reads as much text. Garbage is collected
// between the readings alone: the smaller ones make too little of it for a collection.
const (
	walkedGrowth = 2
	walkedFloor  = 20 * time.Millisecond
	walkedRuns   = 24
)

// walkedKinds are the kinds that files may hold, with the fields that make an object of few lists valid.
var walkedKinds = []struct {
	kind, version string
	of            any
	fields        map[string]any
}{
	{"Service", "v1", corev1.Service{}, map[string]any{"spec": map[string]any{"clusterIP": "10.96.0.1", "ports": []any{map[string]any{"port": 80}}}}},
	{"EndpointSlice", "discovery.k8s.io/v1", discoveryv1.EndpointSlice{}, map[string]any{"addressType": "IPv4", "endpoints": []any{}}},
	//lint:ignore SA1019 files may still hold Endpoints
	{"Endpoints", "v1", corev1.Endpoints{}, nil},
	{"Node", "v1", corev1.Node{}, nil},
	{"ServiceCIDR", "networking.k8s.io/v1", networkingv1.ServiceCIDR{}, nil},
	{balance.Kind, balance.Version, balance.Balance{}, map[string]any{"listen": "192.0.2.1:80", "backends": "192.0.2.2:80"}},
	{balance.PoolKind, balance.Version, balance.Pool{}, map[string]any{"servers": "192.0.2.2:80"}},
	{balance.DefaultsKind, balance.Version, balance.Defaults{}, nil},
}

// TestLinear: reading costs no more than its text, for each list and map of each kind, in several shapes
// of entries, and for many objects that belong together.
func TestLinear(t *testing.T) {
	for _, k := range walkedKinds {
		for _, path := range lists(reflect.TypeOf(k.of), nil, nil) {
			for shape, entry := range walkedEntries {
				t.Run(k.kind+"/"+strings.Join(path, ".")+"/"+shape, func(t *testing.T) {
					checkLinear(t, func(n int) string {
						fields := map[string]any{"kind": k.kind, "apiVersion": k.version}
						if k.kind != balance.DefaultsKind {
							fields["metadata"] = map[string]any{"name": "web", "labels": map[string]any{discoveryv1.LabelServiceName: "web"}}
						}
						if k.version == balance.Version {
							delete(fields, "metadata")
							fields["name"] = "web"
						}
						for name, v := range k.fields {
							fields[name] = v
						}
						put(reflect.TypeOf(k.of), fields, path, entriesOf(reflect.TypeOf(k.of), path, n, entry))
						return blockStyle(fields, "")
					}, false)
				})
			}
		}
	}
	for name, text := range walkedTexts {
		t.Run(name, func(t *testing.T) { checkLinear(t, text, false) })
		t.Run(name+", isolated", func(t *testing.T) { checkLinear(t, text, true) })
	}
}

// walkedEntries are the shapes of values: a text, and an entry of a list of ports, for example.
var walkedEntries = map[string]func(field string, i int) any{
	"addresses": func(field string, i int) any {
		switch {
		case strings.Contains(strings.ToLower(field), "port"):
			return 1 + i%65_000
		case field == "name":
			return fmt.Sprintf("n%d", i)
		case field == "protocol":
			return "TCP"
		}
		return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
	},
	"texts": func(_ string, i int) any { return fmt.Sprintf("text-%d", i) },
}

// walkedTexts are files of many objects or fields that concern each other.
var walkedTexts = map[string]func(n int) string{
	"ports of a Service and its slice": func(n int) string {
		return repeat("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.1, ports: [", n, "{name: n%d, port: %[1]d},", "]}}\n---\n") +
			repeat(slice("web-1", "192.0.2.1")+"ports: [", n, "{name: n%d, port: %[1]d},", "]}\n")
	},
	"ports of a Service, in block style": func(n int) string {
		return repeat("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  clusterIP: 10.96.0.1\n  ports:\n", n, "  - {name: n%d, port: %[1]d}\n", "")
	},
	"ports of a Service that its slice lacks": func(n int) string {
		return repeat("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.1, ports: [", n, "{name: n%d, port: %[1]d},", "]}}\n---\n") +
			repeat(slice("web-1", "192.0.2.1")+"ports: [", n, "{name: m%d, port: %[1]d},", "]}\n")
	},
	"ports of a slice that its Service lacks": func(n int) string {
		return "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.1, ports: [{name: n1, port: 1}]}}\n---\n" +
			repeat(slice("web-1", "192.0.2.1")+"ports: [", n, "{name: n%d, port: %[1]d},", "]}\n")
	},
	"slices of a Service of many ports": func(n int) string {
		return repeat("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.1, ports: [", n, "{name: n%d, port: %[1]d},", "]}}\n") +
			repeat("", n, "---\n"+slice("web-%d", "192.0.2.1")+"ports: [{name: n%[1]d, port: %[1]d}]}\n", "")
	},
	"subsets of Endpoints": func(n int) string {
		return repeat("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.1, ports: [", n, "{name: n%d, port: %[1]d},", "]}}\n---\n") +
			repeat("{apiVersion: v1, kind: Endpoints, metadata: {name: web}, subsets: [", n, "{addresses: [{ip: 192.0.2.1}], ports: [{name: n%d, port: %[1]d}]},", "]}\n")
	},
	"unknown fields":                func(n int) string { return repeat("{kind: Balance, name: web", n, ", field%d: 1", "}\n") },
	"unknown fields in block style": func(n int) string { return repeat("kind: Balance\nname: web\n", n, "field%d: 1\n", "") },
	"a field given many times":      func(n int) string { return repeat("kind: Balance\n", n, "name: web%d\n", "") },
	"servers of the wrong type": func(n int) string {
		return repeat("kind: Balance\nname: web\nlisten: 192.0.2.1:80\nbackends:\n", n, "- {address: %d}\n", "")
	},
	"Balances": func(n int) string {
		return repeat("", n/8, "---\nkind: Balance\nname: web%d\nlisten: 192.0.2.1:%[1]d\nbackends: [192.0.2.2:80]\n", "")
	},
	"Balances of a list of servers": func(n int) string {
		return "kind: Servers\nname: farm\nservers: [192.0.2.1:80]\n" +
			repeat("", n/8, "---\nkind: Balance\nname: web%d\nlisten: 192.0.2.1:%[1]d\nbackends: {servers: farm}\n", "")
	},
	"lists of servers of a Balance": func(n int) string {
		return repeat("", n/8, "kind: Servers\nname: farm%d\nservers: [192.0.2.1:%[1]d]\n---\n", "") +
			repeat("kind: Balance\nname: web\nlisten: 192.0.2.1:80\nbackends:\n", n/8, "- {servers: farm%d}\n", "")
	},
	"objects of one name":      func(n int) string { return repeat("", n/4, "---\n"+slice("web", "192.0.2.%d")+"ports: []}\n", "") },
	"slices without a Service": func(n int) string { return repeat("", n/4, "---\n"+slice("web-%d", "192.0.2.1")+"ports: []}\n", "") },
	"items of a List": func(n int) string {
		return repeat("apiVersion: v1\nkind: List\nitems:\n", n/4, "- {apiVersion: v1, kind: Node, metadata: {name: n%d}}\n", "")
	},
	"ports of an item of a List": func(n int) string {
		return repeat("apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: web}\n  spec:\n    clusterIP: 10.96.0.1\n    ports:\n", n, "    - {name: n%d, port: %[1]d}\n", "")
	},
	"ports of a Service with unknown fields": func(n int) string {
		return repeat("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  clusterIP: 10.96.0.1\n", n, "  field%d: 1\n", "") +
			repeat("  ports:\n", n, "  - {name: n%d, port: %[1]d}\n", "")
	},
	"items of a List that need each other": func(n int) string {
		return repeat("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: &m {name: n}}\n", n/4, "- {apiVersion: v1, kind: Node, metadata: *m, spec: {podCIDR: 10.%d.0.0/24}}\n", "")
	},
	"items of a List in JSON": func(n int) string {
		return strings.TrimSuffix(repeat("{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [", n/4, "\n{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"n%d\"}},", ""), ",") + "]}\n"
	},
	"items of a List in JSON with mistakes": func(n int) string {
		return strings.TrimSuffix(repeat("{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [", n/4, "\n{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": %d}},", ""), ",") + "]}\n"
	},
	"documents in JSON": func(n int) string {
		return repeat("", n/4, "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"n%d\"}}\n", "")
	},
	"documents in JSON, and a broken one": func(n int) string {
		return repeat("", n/4, "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"n%d\"}}\n", "{\"apiVersion\"\n")
	},
	"lists of servers, and of clients, of many Balances": func(n int) string {
		return repeat("", n/8, "---\nkind: Balance\nname: web%d\nlisten: 192.0.2.1:%[1]d\nclients: [10.0.0.0/8, 10.1.0.0/16]\nbackends: [192.0.2.2:80, 192.0.2.3:80]\n", "")
	},
	"Balances with defaults": func(n int) string {
		return "kind: Defaults\nclients: 10.0.0.0/8\n" +
			repeat("", n/8, "---\nkind: Balance\nname: web%d\nlisten: 192.0.2.1:%[1]d\nbackends: [192.0.2.2:80]\n", "")
	},
	"comments": func(n int) string { return repeat(node, 8*n, "# comment %d\n", "") },
	"comments between entries": func(n int) string {
		return repeat(node+"spec:\n  taints:\n", n, "  # comment\n  - key: a%d # comment\n", "")
	},
	"empty lines":              func(n int) string { return repeat(node, 8*n, "\n", "") },
	"empty documents":          func(n int) string { return repeat(node, 8*n, "---\n# %d\n", "") },
	"documents and their ends": func(n int) string { return repeat("", n, "---\napiVersion: v1\nkind: Kind%d\n...\n", "") },
	"directives":               func(n int) string { return repeat("", n, "%%YAML 1.2\n---\napiVersion: v1\nkind: Kind%d\n...\n", "") },
	"a long text":              func(n int) string { return repeat(node+"spec: {providerID: ", 8*n, "text%d", "}\n") },
	"a long text in quotes":    func(n int) string { return repeat(node+"spec: {providerID: \"", 8*n, "text%d\\n", "\"}\n") },
	"a text of many lines":     func(n int) string { return repeat(node+"spec:\n  providerID:\n", n, "    text %d\n", "") },
	"a block of many lines":    func(n int) string { return repeat(node+"spec:\n  providerID: |\n", n, "    text %d\n", "") },
	"a folded block of many lines": func(n int) string {
		return repeat(node+"spec:\n  providerID: >\n", n, "    text %d\n", "")
	},
	"brackets in brackets": func(n int) string { return node + "spec: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "\n" },
	"objects in objects":   func(n int) string { return node + "spec: " + strings.Repeat("{a: ", n) + strings.Repeat("}", n) + "\n" },
	"lists in lists":       func(n int) string { return node + "spec:\n  " + strings.Repeat("- ", n) + "a\n" },
	"brackets in JSON": func(n int) string {
		return "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"spec\": " + strings.Repeat("[", n) + strings.Repeat("]", n) + "}\n"
	},
	"anchors": func(n int) string {
		return repeat(node+"spec:\n  taints:\n", n, "  - &a%d {key: a}\n  - *a%[1]d\n", "")
	},
	"aliases of one anchor": func(n int) string {
		return repeat(node+"spec:\n  taints:\n  - &a {key: a}\n", n, "  - *a # %d\n", "")
	},
	"anchors of one name":    func(n int) string { return repeat(node+"spec:\n  taints:\n", n, "  - &a {key: a%d}\n", "") },
	"objects of other kinds": func(n int) string { return repeat("", n, "---\napiVersion: v1\nkind: Kind%d\n", "") },
	"broken documents":       func(n int) string { return repeat("", n, "---\nkind: [%d\n", "") },
}

// node is a valid Node, to which fields can be added.
const node = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"

// slice returns the begin of an EndpointSlice of the Service web.
func slice(name, address string) string {
	return "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: " + name +
		", labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: [{addresses: [" + address + "]}], "
}

// repeat returns a text with n copies of a format in it, which have the number.
func repeat(before string, n int, format, after string) string {
	var b strings.Builder
	b.WriteString(before)
	for i := range n {
		fmt.Fprintf(&b, format, i+1)
	}
	b.WriteString(after)
	return b.String()
}

// blockStyle returns a value as YAML that a person would write, behind a line end unless it is a scalar. A library
// takes longer for it than the reader.
func blockStyle(v any, indent string) string {
	var b strings.Builder
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return " []"
		}
		for _, e := range v {
			fmt.Fprint(&b, "\n", indent, "- ", strings.TrimLeft(blockStyle(e, indent+"  "), "\n "))
		}
	case map[string]any:
		if len(v) == 0 {
			return " {}"
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprint(&b, "\n", indent, key, ":", blockStyle(v[key], indent+"  "))
		}
	default:
		fmt.Fprint(&b, " ", v)
	}
	return b.String()
}

// checkLinear compares the time of the processor that two sizes of a text take.
func checkLinear(t *testing.T, text func(n int) string, isolated bool) {
	t.Helper()
	few, many := "", writeFile(t, text(walkedMany))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least, most := time.Duration(1<<62), time.Duration(1<<62)
	for range walkedRuns {
		if most = min(most, readingTime(many, isolated)); most <= walkedFloor {
			return
		}
		if few == "" {
			few = writeFile(t, text(walkedFew))
		}
		var again time.Duration
		for range walkedMany / walkedFew {
			again += readingTime(few, isolated)
		}
		if least = min(least, again); most <= walkedGrowth*least {
			return
		}
	}
	t.Errorf("%d times as many entries take %v, and as many readings of the others %v", walkedMany/walkedFew, most, least)
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "objects.yaml")
	check(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// readingTime returns the time of the processor that a file takes, valid or not.
func readingTime(path string, isolated bool) time.Duration {
	r := &Reader{Paths: []string{path}}
	if isolated {
		r.Isolation = NewIsolation(nil)
	}
	runtime.GC()
	before := processTime()
	_, _ = r.Load()
	return processTime() - before
}

func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// lists returns the paths of all lists and maps of a type.
func lists(t reflect.Type, path []string, around []reflect.Type) (out [][]string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for _, a := range around {
		if a == t {
			return nil
		}
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if around := t.Field(f.Index[0]).Tag.Get("json"); name == "" || name == "-" || len(f.Index) > 1 && !strings.HasPrefix(around, ",") {
			continue // or it is a field of that one
		}
		at := append(path[:len(path):len(path)], name)
		if k := f.Type.Kind(); k == reflect.Slice || k == reflect.Map {
			out = append(out, at)
		}
		out = append(out, lists(f.Type, at, append(around[:len(around):len(around)], t))...)
	}
	return out
}

// fieldType returns the type of a field.
func fieldType(t reflect.Type, name string) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f.Type
		}
	}
	panic("no field " + name)
}

// entriesOf returns n entries of the list or map at a path.
func entriesOf(t reflect.Type, path []string, n int, entry func(field string, i int) any) any {
	for _, name := range path {
		t = fieldType(t, name)
	}
	last := path[len(path)-1]
	if t.Kind() == reflect.Map {
		out := make(map[string]any, n)
		for i := range n {
			out[fmt.Sprintf("key-%d", i)] = entry(last, i)
		}
		return out
	}
	out := make([]any, n)
	for i := range out {
		if out[i] = entry(last, i); t.Elem().Kind() == reflect.Struct {
			out[i] = objectOf(t.Elem(), i, entry)
		}
	}
	return out
}

// objectOf returns an object with the single values and lists of texts of a type.
func objectOf(t reflect.Type, i int, entry func(field string, i int) any) map[string]any {
	out := make(map[string]any)
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		switch {
		case name == "" || name == "-":
		case of.Kind() == reflect.String || of.Kind() == reflect.Int32 && strings.Contains(name, "ort"):
			out[name] = entry(name, i)
		case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.String:
			out[name] = []any{entry(name, i)}
		}
	}
	return out
}

// put puts a value at a path, with one entry in each list on the way.
func put(t reflect.Type, fields map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		t = fieldType(t, name)
		inner := make(map[string]any)
		if old, ok := fields[name].(map[string]any); ok {
			for k, v := range old {
				inner[k] = v
			}
		}
		if fields[name] = inner; t.Kind() == reflect.Slice {
			fields[name] = []any{inner}
		}
		fields = inner
	}
	fields[path[len(path)-1]] = value
}
