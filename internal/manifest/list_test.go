package manifest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// describe returns the content of a document as JSON, with a line for each item
// and what is around them. ok is false if an item cannot be parsed by itself.
func describe(d *Document) (out []string, cut, ok bool) {
	o, err := d.Parse()
	if err != nil || o == nil {
		return []string{fmt.Sprint(err)}, false, true
	}
	cut = o.IsCut()
	n, err := o.Items()
	if err != nil {
		return []string{err.Error()}, cut, true
	}
	for i := range n {
		item, _ := o.ItemAt(i)
		if item == nil {
			return nil, cut, false
		}
		out = append(out, fmt.Sprintf("%v: %s %v", item.Place, item.asJSON(), item.problems))
	}
	return append(out, fmt.Sprintf("%s %v", o.asJSON(), o.problems)), cut, true
}

func compareCut(t *testing.T, text string) (cut, ok bool) {
	t.Helper()
	ok = true
	docs, _ := Split("file", []byte(text))
	for _, d := range docs {
		if d.broken != nil {
			continue
		}
		var got []string
		got, cut, ok = describe(d)
		want, _, whole := describe(d.Whole())
		if !whole {
			t.Fatalf("the items of a whole document cannot be parsed:\n%s", text)
		}
		if diff := cmp.Diff(want, got); ok && diff != "" {
			t.Errorf("%q (-whole +cut):\n%s", text, diff)
		}
	}
	return cut, ok
}

// TestCut checks that the items of a List are the same if each is parsed by itself.
func TestCut(t *testing.T) {
	const whole, cut, failing = "parsed as a whole", "parsed by item", "not to be parsed by item"
	for _, c := range []struct{ text, want string }{
		{"items:\n- a: 1\n- b: 2\nkind: List\n", cut},
		{"items:\r\n- a: 1\r\n- b: 2\r\nkind: List\r\n", cut},
		{"--- # x\nkind: List\nitems:\n  # c\n  - a:\n    - b\n    - c\n\n  - |\n    x\n  -\n    y: 1\nz: 1", cut},
		{"items:\n- &a {x: 1}\n- &a {x: 2}\n- *a\n", failing},
		{"items:\n- \"a\n- b\"\n- c\n", failing},
		{"items:\n- [a,\n- b]\n", failing},
		{"items:\n- a\n  - b: 1\n   c\n", failing},
		{"items:\n- a\r- b\n", whole},
		{"items:\n\f\n- a\n", whole},
		{"items:\n# \x01\n- a\n", failing},
		{"%TAG !x! tag:yaml.org,2002:\n---\nitems:\n- !x!str 1\n", failing},
		{"items:\n  - a\n- b\n", whole},
		{"items:\n- a\nitems:\n- b\n", cut},
		{"{\nitems:\n- a\n}\n", whole},
		{"a: \"x\nitems:\n- b\nc\"\n", whole},
		{"a: \"x\nitems:\n- b\nc\"\nitems: []\n", whole},
		{"--- |\nitems:\n- a\n", whole},
		{"items: [a, b]\nkind: List\n", whole},
		{"items:\n  a: 1\n", whole},
		{"items:\n", whole},
	} {
		got := whole
		switch isCut, ok := compareCut(t, c.text); {
		case !ok:
			got = failing
		case isCut:
			got = cut
		}
		if got != c.want {
			t.Errorf("%q is %s, want %s", c.text, got, c.want)
		}
	}
}

// FuzzCut checks the same for any text.
func FuzzCut(f *testing.F) {
	for _, text := range []string{"items:\n- a: 1\n- b: [2]\nkind: List\n", "a: \"\nitems:\n- b\"\n", "items:\n- |\n a\n- >\n\n b\n", `{"a": 1, "items": [{}, 2], "kind": "List"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { compareCut(t, text) })
}
