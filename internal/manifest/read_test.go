package manifest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// countingReader counts what is read of an endless text.
type countingReader struct {
	of byte
	n  int
}

func (r *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.of
	}
	r.n += len(p)
	return len(p), nil
}

// TestRead: 12.85. A text beyond the limit, or that is none, is not read to its end.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		of   byte
		most int
		want string
	}{
		{0, 1 << 20, "line 1 holds a NUL: the file is no text"},
		{'a', 3 * budget.FileSize, "is larger than 64 MiB: split it into several files"},
	} {
		r := &countingReader{of: c.of}
		if _, err := Read(r); err == nil || err.Error() != c.want || r.n > c.most {
			t.Errorf("%q: %d bytes read, error %v", c.of, r.n, err)
		}
	}
	text := strings.Repeat("a: b\n", 10_000)
	if got, err := Read(iotest.OneByteReader(strings.NewReader(text))); err != nil || string(got) != text {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	failed := errors.New("failed")
	if _, err := Read(io.MultiReader(strings.NewReader("a"), iotest.ErrReader(failed))); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	utf16 := "\xff\xfea\x00"
	if got, err := Read(strings.NewReader(utf16)); err != nil || string(got) != utf16 {
		t.Errorf("%q, %v", got, err)
	}
}

// TestReadFile: 12.85. The size of a sparse file is enough to refuse it.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte("a: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(path); err != nil || string(got) != "a: b\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Truncate(path, budget.FileSize+1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); !errors.Is(err, errLong) {
		t.Errorf("error %v", err)
	}
	if _, err := ReadFile(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// TestLargeObjects: 12.85. Objects with more values than any that makes sense are not
// parsed, in any form, and others of the file are.
func TestLargeObjects(t *testing.T) {
	const good, name = "---\napiVersion: v1\nkind: Service\nmetadata: {name: good}\n", "a"
	many := budget.FileValues + 1
	spec := "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  clusterIP: "
	list := "apiVersion: v1\nkind: List\nitems:\n- kind: Service\n  spec: {externalIPs: [" + strings.Repeat("a,", many) + "]}\n- {}\n"
	const values, size, objects = "the object has more than 250000 lines and commas", "is larger than 16 MiB", "holds more than 250000 objects"
	for what, c := range map[string]struct{ text, want string }{
		"block":           {spec + "x\n  externalIPs:\n" + strings.Repeat("  - a\n", many), values},
		"flow":            {spec + "x\n  externalIPs: [" + strings.Repeat("a,", many) + "]\n", values},
		"carriage return": {spec + "x\n  externalIPs:\n" + strings.Repeat("  - a\r", many), values},
		"next line":       {spec + "x\n  externalIPs:\n" + strings.Repeat("  - a\u0085", many), values},
		"JSON":            {`{"kind": "Service", "spec": {"externalIPs": [` + strings.Repeat(`"a",`, many) + `"a"]}}`, values},
		"item":            {list, values},
		"JSON item":       {`{"kind": "List", "items": [{"kind": "Service", "spec": {"externalIPs": [` + strings.Repeat(`"a",`, many) + `"a"]}}]}`, values},
		"text":            {spec + strings.Repeat("a", budget.FileObject) + "\n", size},
		"documents":       {strings.Repeat("---\na\n", budget.FileObjects+1), objects},
		"values":          {strings.Repeat("{}\n", budget.FileObjects+1), objects},
		"items":           {"kind: List\nitems:\n" + strings.Repeat("- {}\n", budget.FileObjects+1), objects},
		"JSON items":      {`{"kind": "List", "items": [` + strings.Repeat("{},", budget.FileObjects) + `{}]}`, objects},
	} {
		t.Run(what, func(t *testing.T) {
			docs, err := Split(name, []byte(c.text+"\n"+good))
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Error(err)
				}
				return
			}
			_, problem := parseItems(docs[0])
			if problem == nil || !strings.Contains(problem.Error(), c.want) || problem.File != name {
				t.Errorf("error %v", problem)
			}
			if o, err := docs[len(docs)-1].Parse(); o == nil || err != nil {
				t.Errorf("the other one: %v", err)
			}
		})
	}
}

// parseItems parses a document, and its items if it is a List.
func parseItems(d *Document) (*Object, *Error) {
	o, err := d.Parse()
	if err != nil || o == nil {
		return o, err
	}
	if kind, _ := o.Type(); kind != "List" {
		return o, nil
	}
	n, err := o.Items()
	for i := range n {
		if _, err := o.ItemAt(i); err != nil {
			return o, err
		}
	}
	return o, err
}

// TestLargeFilesAreRead: the limits admit what API servers accept.
func TestLargeFilesAreRead(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports:\n")
	for range 15_000 {
		b.WriteString("  - name: a\n    port: 80\n    protocol: TCP\n    targetPort: 80\n")
	}
	docs, err := Split("a", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if o, err := docs[0].Parse(); o == nil || err != nil {
		t.Error(err)
	}
}
