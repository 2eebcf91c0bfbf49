package manifest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// everything has a field of each type that a block is decoded into, and some that it is not.
type everything struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Text              string                `json:"text"`
	Texts             []string              `json:"texts"`
	Truth             bool                  `json:"truth"`
	Small             int8                  `json:"small"`
	Large             int64                 `json:"large"`
	Fraction          float64               `json:"fraction"`
	Pointer           *int32                `json:"pointer"`
	PointerText       *string               `json:"pointerText"`
	Either            intstr.IntOrString    `json:"either"`
	Time              metav1.Time           `json:"time"`
	Names             map[string]string     `json:"names"`
	Inner             *everything           `json:"inner"`
	Inners            []everything          `json:"inners"`
	ByName            map[string]everything `json:"byName"`
	Any               any                   `json:"any"`
	Raw               json.RawMessage       `json:"raw"`
	Bytes             []byte                `json:"bytes"`
	Number            json.Number           `json:"number"`
}

// targets returns a value of each type that objects of files are decoded into.
func targets() []any {
	//lint:ignore SA1019 files may still hold Endpoints
	return []any{&corev1.Service{}, &corev1.Endpoints{}, &corev1.Node{}, &discoveryv1.EndpointSlice{}, &networkingv1.ServiceCIDR{}, &everything{}}
}

// sameAsParser compares what is read from an object, with and without the YAML parser.
func sameAsParser(t *testing.T, o, parsed *Object) {
	t.Helper()
	if o.block == nil {
		return
	}
	compare := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s of\n%s\nis %+v, with the YAML parser %+v", what, o.block.text, got, want)
		}
	}
	kind, version := o.Type()
	wantKind, wantVersion := parsed.Type()
	compare("type", kind+" "+version, wantKind+" "+wantVersion)
	compare("place", o.Place, parsed.Place)
	for path := range paths(parsed.root, "") {
		compare("line of "+path, o.FieldLine(path), parsed.FieldLine(path))
		compare("error of "+path, o.Error(&FieldError{Field: path}), parsed.Error(&FieldError{Field: path}))
	}
	if o.root != nil {
		t.Error("lines need the YAML parser")
	}
	for i, into := range targets() {
		want := targets()[i]
		problems := o.Decode(into)
		compare("problems", fmt.Sprint(problems), fmt.Sprint(parsed.Decode(want)))
		compare("value", into, want)
	}
	compare("shown", o.Shown(), parsed.Shown())
	compare("JSON", string(o.JSON()), string(parsed.JSON()))
	if value, ok := o.block.value(0); ok {
		text, _ := json.Marshal(value)
		compare("value", string(text), string(parsed.JSON()))
	}
}

// paths yields the paths of all fields, and of some that are not there.
func paths(n *yaml.Node, at string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		all := []string{at, at + ".missing", at + "[7]", at + "[0]", at + ".]"}
		for i := 0; i < len(n.Content); i++ {
			path := fmt.Sprintf("%s[%d]", at, i)
			if n.Kind == yaml.MappingNode {
				path = at + "." + n.Content[i].Value
				all = append(all, at+"["+n.Content[i].Value+"]", path+"x")
				i++
			}
			for inner := range paths(n.Content[i], path) {
				all = append(all, inner)
			}
		}
		for _, path := range all {
			if !yield(strings.TrimPrefix(path, ".")) {
				return
			}
		}
	}
}

// compareBlocks compares all objects of a text, and returns how many of them need the YAML
// parser, and how many do not.
func compareBlocks(t *testing.T, text string) (parser, blocks int) {
	t.Helper()
	if data := []byte(text); !reflect.DeepEqual(chunks(data), directiveChunks(data)) {
		t.Errorf("%q is cut in %v, with directives in %v", text, chunks(data), directiveChunks(data))
	}
	docs, _ := Split("file", []byte(text))
	for _, d := range docs {
		objects, problem := allOf(d)
		want, wantProblem := allOf(&Document{Place: d.Place, text: d.text, json: d.json, broken: d.broken, parser: true})
		if fmt.Sprint(problem) != fmt.Sprint(wantProblem) || len(objects) != len(want) {
			t.Fatalf("%q has %d objects and %v, with the YAML parser %d and %v", text, len(objects), problem, len(want), wantProblem)
		}
		for i, o := range objects {
			if o.block != nil {
				blocks++
			} else {
				parser++
			}
			sameAsParser(t, o, want[i])
		}
	}
	return parser, blocks
}

// allOf returns the object of a document, and the items of a List that can be parsed alone.
func allOf(d *Document) ([]*Object, *Error) {
	o, err := d.Parse()
	if err != nil || o == nil {
		return nil, err
	}
	n := 0
	if o.IsCut() {
		n, err = o.Items()
	}
	all := []*Object{o}
	for i := range n {
		item, problem := o.ItemAt(i)
		if err == nil {
			err = problem
		}
		if item != nil {
			all = append(all, item)
		}
	}
	return all, err
}

// nested returns objects in objects.
func nested(levels int) string {
	var text strings.Builder
	for i := range levels {
		fmt.Fprintf(&text, "%sa:\n", strings.Repeat(" ", i))
	}
	return text.String() + strings.Repeat(" ", levels) + "a: b\n"
}

const (
	asBlock  = "as a block"
	byParser = "by the YAML parser"
)

// TestBlock: what is read as a block is the same with the YAML parser, and all that kubectl
// prints is read so.
func TestBlock(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"kind: Service\n", asBlock},
		{"kind: Service", asBlock},
		{"--- # x\n\n# c\nkind: Service # c\nspec: # c\n\n  # c\n  type: a#b # c\n \n", asBlock},
		{"---\nspec:\n  ports:\n  - name: http\n    port: 80\n    targetPort: 8080\n  -   port: 1\n      name: \"\"\nkind: Service\n", asBlock},
		{"spec:\n    ports:\n        - port: 80\n        - port: 81\n    clusterIPs:\n        - 10.96.0.1\n        - \"::1\"\n        - 'it''s'\n", asBlock},
		{"spec: {}\nports: []\nstatus:\n  loadBalancer: {}  # c\n", asBlock},
		{"metadata:\n  annotations:\n    a.b/c-d: |\n      {\"a\": 1}\n\n        b # no\n    e: |-\n      x\n      y\n\n\n    f: |  \n      z\n", asBlock},
		{"text: \"a\\n\\\"b\\\\ # \\t\" # c\ntexts:\n- \"\"\n- ''\n- 'a: b'\n- ~\n- null\n- x:y\n- -x\n- a#b\n- a'b\"c\n", asBlock},
		{"text: größer\nnames:\n  a: \"日本\" # ü\n", asBlock},
		{"truth: true\nsmall: 12\nlarge: -5\nfraction: 1.5\npointer: 7\nnumber: 3\nbytes: YQ==\nany: 2\nraw: {}\n", asBlock},
		{"text: 10.96.0.1\ntexts:\n- 1.2\n- 1e3\n- 0x10\n- 08\n- 1_000\n- 2026-01-31\n- 2026-01-31T12:00:00Z\n- yes\n- no\n- on\n- y\n- .inf\n- +1\n- 1.2.3\n- 1:2\n- Null\n- TRUE\n- False\n- 12345678901\n- 0\n- -\n", byParser},
		{"texts:\n- 1.2\n- 1e3\n- 0x10\n- 08\n- 1_000\n- 2026-01-31\n- 2026-01-31T12:00:00Z\n- yes\n- no\n- on\n- y\n- .inf\n- +1\n- 1.2.3\n- 1:2\n- Null\n- TRUE\n- False\n- 12345678901\n- 0\n- -1\n- 0c1d7a52-3f0b-4b9c-8f1e-000000000000\n- 2026-1-1T1:1:1.0-01:00\n- 0x1.8p1.\n- nothing\n- falsehood\n", asBlock},
		{"text: 2026-01-31\ntruth: True\nsmall: 300\n", asBlock},
		{"time: 2026-01-31T12:00:00Z\ninner:\n  time: \"2026-01-31T12:00:00Z\"\n  either: 80\n  inner:\n    either: http\n    time: null\n", asBlock},
		{"text: a\ntext: b\nnames:\n  a: b\n  a: c\nraw:\n  a: 1\n  a: 2\n", asBlock},
		{"kind: Service\nkind: Service\n", asBlock},
		{"names:\n  true: a\n  null: b\n  1: c\n  01: d\nraw:\n  b: a<&>\n  a:\n  - 1\n  - x: true\n", asBlock},
		{"inners:\n- text: a\n  inners:\n  - texts:\n    - a\n    - b\n  byName:\n    x:\n      text: y\n-   text: b\n", asBlock},
		{"text:\n\nnames:\ninners:\ntruth:\nsmall:\ntime:\neither:\nraw:\nbyName:\n  a:\n", asBlock},
		{"a: b: c\n", byParser},
		{"a: b\n  c\n", byParser},
		{"a: 'b\n  c'\n", byParser},
		{"a: b\n c: d\n", byParser},
		{"a:\n  b: c\n d: e\n", byParser},
		{"a:\n  - b\n - c\n", byParser},
		{"a:\n- b\nc\n", byParser},
		{"a: b\n- c\n", byParser},
		{"a: &x b\nc: *x\n", byParser},
		{"a: !!str 1\n", byParser},
		{"a: {b: c}\n", byParser},
		{"a: [b]\n", byParser},
		{"a: >\n  b\n", byParser},
		{"a: |\n  b", byParser},
		{"a: |\n\n  b\n", byParser},
		{"a: |2\n   b\n", byParser},
		{"a: |\nb: c\n", byParser},
		{"a: |\n    b\n  c\nd: e\n", byParser},
		{"a: |\n    b\n  # c\nd: e\n", byParser},
		{"a: |\n  b\n     \nd: e\n", byParser},
		{"a: \"\\x41\"\n", byParser},
		{"a: \"b\" c\n", byParser},
		{"a: \"b\"#c\n", byParser},
		{"a: 'b\n", byParser},
		{"a: b\tc\n", byParser},
		{"a: b\r\nc: d\r\n", byParser},
		{"a: b\u0085c: d\n", byParser},
		{"a: \ufeffb\n", byParser},
		{"a: \x01\n", byParser},
		{"a: \xff\n", byParser},
		{"<<: a\n", byParser},
		{"? a\n: b\n", byParser},
		{"\"a\": b\n", byParser},
		{"a : b\n", byParser},
		{"raw:\n  .: {}\n  k:{\"port\":80,\"a\":\"b\"}:\n    f:a#: {}\n", asBlock},
		{"a:b\n", byParser},
		{"a: b #c\n#d\n  #e\n", asBlock},
		{"a:\n-\n  b\n", byParser},
		{"a:\n- - b\n", byParser},
		{"a: - b\n", byParser},
		{"a: ? b\n", byParser},
		{"a: %b\n", byParser},
		{"a: @b\n", byParser},
		{"a: b:\n", byParser},
		{nested(blockDepth - 1), asBlock},
		{nested(blockDepth), byParser},
		{strings.Repeat("a", 600) + ": b\n", byParser},
		{"- a: b\n", byParser},
		{"text\n", byParser},
		{"kind: List\nitems:\n- a: b\n# c\n- c: d\n\nmetadata:\n  name: x\n...\n# c\n---\n...\n---\na: b\n", asBlock},
		{"items:\n  - a: b\n\n  - c: d\n    e: f\nkind: List\nitems: []\n", asBlock},
		{"%YAML 1.1\n---\na: b\n", byParser},
		{"--- a\n", byParser},
		{"--- {a: b}\n", byParser},
	} {
		got := byParser
		if _, blocks := compareBlocks(t, c.text); blocks > 0 {
			got = asBlock
		}
		if got != c.want {
			t.Errorf("%q is read %s, want %s", c.text, got, c.want)
		}
	}
}

// TestBlockOfKubectl: objects as kubectl prints them need no YAML parser, neither for their
// values nor for the lines of their fields.
func TestBlockOfKubectl(t *testing.T) {
	text, err := os.ReadFile("../source/files/testdata/good/kubectl-list.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if parser, blocks := compareBlocks(t, string(text)); parser != 0 || blocks == 0 {
		t.Errorf("%d objects need the YAML parser, %d do not", parser, blocks)
	}
}

// TestBlockOfFiles compares the files of other tests, and those in them.
func TestBlockOfFiles(t *testing.T) {
	parser, blocks := 0, 0
	for _, pattern := range []string{"../source/files/testdata/*/*", "../../golden/*/*"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				continue // a directory
			}
			archive := txtar.Parse(text)
			for _, file := range append(archive.Files, txtar.File{Data: archive.Comment}) {
				p, b := compareBlocks(t, string(file.Data))
				parser, blocks = parser+p, blocks+b
			}
		}
	}
	if t.Logf("%d objects were read as blocks, and %d by the YAML parser", blocks, parser); blocks < 50 || parser < 100 {
		t.Errorf("%d objects were read as blocks, and %d by the YAML parser", blocks, parser)
	}
}

// FuzzBlock compares any text.
func FuzzBlock(f *testing.F) {
	for _, text := range []string{
		"kind: Service\nspec:\n  ports:\n  - port: 80\n    name: \"a\\n\"\n", "items:\n- a: |\n    b\n\n    c\n- d: 'e''f' # g\n",
		"texts:\n- 1.2\n- 0x1\n- ~\n- .5\n- -1\ntime: 2026-01-31\nsmall: 1\ntruth: false\n", "a: |-\n  b\nc: []\nd: {}\n",
		"inners:\n- text: a\n  inners:\n  - texts:\n    - a\n", "text: ü\nnames:\n  a: b\n  a: c\n", "--- # a\n# b\na: b # c\n",
		"raw:\n  b: 1\n  a:\n  - x\neither: 1\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { compareBlocks(t, text) })
}
