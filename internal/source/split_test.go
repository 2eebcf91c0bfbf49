package source

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplitDocuments(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "1:",
		"a\n":                             "1:a|",
		"a\n---\nb":                       "1:a| 2:---|b",
		"---\na\n--- b\n---c\n":           "1: 1:---|a| 3:---.b|---c|",
		"a\r\n---\r\nb":                   "1:a\r| 2:---\r|b",
		"a\n...\nb\n":                     "1:a| 3:b|",
		"%YAML 1.2\n# x\n\n---\na\n---\n": "1:%YAML.1.2|#.x||---|a| 6:---|",
		"a: |\n  ---\n  b\n":              "1:a:.||..---|..b|",
		"%a\n%b\n---\nc":                  "1:%a|%b|---|c",
	} {
		var got []string
		for _, c := range splitDocuments([]byte(in)) {
			got = append(got, fmt.Sprintf("%d:%s", c.line, strings.NewReplacer("\n", "|", " ", ".").Replace(string(c.text))))
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("splitDocuments(%q) (-want +got):\n%s", in, diff)
		}
	}
}

func TestSplitItems(t *testing.T) {
	const item = "- apiVersion: v1\n  kind: Service\n"
	for in, want := range map[string]string{
		"kind: List\nitems:\n" + item + item + "metadata: {}\n":                        "2",
		"items:\n# first\n\n  - a: |\n      - x\n\n    # c\n  -\n    b: c\nkind: List": "2",
		"items:\r\n- a\r\n- b\r\nkind: List\r\n":                                       "2",
		"items: []\nkind: List":                                                        "none",
		"items:\nkind: List":                                                           "none",
		"items:\n  a: b":                                                               "none",
		"spec:\n  items:\n  - a":                                                       "none",
		"items:\n-a":                                                                   "none",
		"":                                                                             "none",
	} {
		got := "none"
		if _, items, ok := splitItems(chunk{[]byte(in), 1}); ok {
			got = fmt.Sprint(len(items))
		}
		if got != want {
			t.Errorf("splitItems(%q) gives %s items, want %s", in, got, want)
		}
	}
}

// TestSplitEqualsWhole reads lists that must not be cut, and others, both ways.
func TestSplitEqualsWhole(t *testing.T) {
	lists := []string{
		"apiVersion: v1\nkind: List\nitems:\n- \"",
		"items:\n- {kind: Service, apiVersion: v1, metadata: {name: \"a\n- b: c\"}}\n- text\nkind: List\napiVersion: v1\n",
		"items:\n- &a {kind: Service, apiVersion: v1, metadata: {name: a}}\n- *a\nkind: List\napiVersion: v1\n",
		"items:\n- kind: Pod\n- kind: Node\n- - x\n-\n- a: [\nkind: List\napiVersion: v1\n",
		"kind: List\napiVersion: v1\nitems:\n- a\nitems:\n- b\n",
		"kind: NodeList\napiVersion: v2\nitems:\n- a\n",
	}
	for _, pattern := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml"} {
		for _, name := range glob(t, pattern) {
			data, err := os.ReadFile(name)
			check(t, err)
			lists = append(lists, string(data))
		}
	}
	for _, text := range lists {
		sameWhole(t, []byte(text))
	}
}

// sameWhole checks that reading lists by item and as a whole is the same.
func sameWhole(t *testing.T, text []byte) {
	t.Helper()
	data, err := trimBOM(text)
	if err != nil {
		return
	}
	var want []*object
	before := 0
	for _, c := range splitDocuments(data) {
		r := objectReader{file: "x", types: make(map[reflect.Type]*structType)}
		objects, documents := r.chunk(c)
		for _, o := range objects {
			o.number(before)
		}
		want, before = append(want, objects...), before+documents
	}
	got := readFiles([]file{{"x", text}}, "")[0].objects
	if diff := cmp.Diff(printObjects(want), printObjects(got)); diff != "" {
		t.Errorf("%q: as a whole and by item (-whole +item):\n%s", text, diff)
	}
}

func printObjects(objects []*object) []string {
	var out []string
	for _, o := range objects {
		text := fmt.Sprintf("%s %s %s", o.place, o.kind, o.other)
		for _, e := range append(o.problems, o.warnings...) {
			text += "\n" + e.Error()
		}
		out = append(out, text+"\n"+describe(o.slices)+"\n"+describeAny(o.service)+describeAny(o.node))
	}
	return out
}

func describeAny[T any](v *T) string {
	if v == nil {
		return ""
	}
	return describe(v)
}
