package files

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// edits returns texts of a file, first with so many objects, each made of the one before by one of n edits.
func edits(list bool, objectsAtFirst, n int) (texts []string) {
	r := rand.New(rand.NewPCG(1, 2))
	var objects []string
	for i := range objectsAtFirst {
		objects = append(objects, editedObject(r, i))
	}
	for i := range n {
		switch at := r.IntN(len(objects)); r.IntN(6) {
		case 0:
			objects = slices.Insert(objects, at, editedObject(r, 100+i))
		case 1:
			objects = slices.Delete(objects, at, at+1)
		case 2:
			objects[at] += "# a comment\n"
		case 3:
			objects[at] = strings.Replace(objects[at], "10.96.0.", "10.97.0.", 1)
		case 4:
			objects[at], objects[0] = objects[0], objects[at]
		case 5: // a problem, or none: defined twice
			objects = append(objects, objects[at])
			texts = append(texts, fileOf(list, objects))
			objects = objects[:len(objects)-1]
		}
		texts = append(texts, fileOf(list, objects))
	}
	return texts
}

// editedObject returns a Service with some warnings.
func editedObject(r *rand.Rand, i int) string {
	text := fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata:\n  name: s%d\nspec:\n  clusterIP: 10.96.0.%d\n", i, i)
	if r.IntN(2) == 0 {
		text += "  type: LoadBalancer\n"
	}
	if r.IntN(2) == 0 {
		text += "  selector: {a: b}\n"
	}
	if r.IntN(9) == 0 {
		text += "  externalTrafficPolicy: &a Cluster\n  internalTrafficPolicy: *a\n"
	}
	return text + "  ports:\n  - port: 80\n"
}

func fileOf(list bool, objects []string) string {
	if !list {
		return "---\n" + strings.Join(objects, "---\n")
	}
	text := "apiVersion: v1\nitems:\n"
	for _, o := range objects {
		text += "- " + strings.ReplaceAll(strings.TrimSuffix(o, "\n"), "\n", "\n  ") + "\n"
	}
	return text + "kind: List\n"
}

// strayLines are what an edit by hand may leave somewhere.
var strayLines = []string{
	"---\n", "--- # next\n", "...\n", "# a comment\n", "\n", "  \n", "%YAML 1.2\n", "- a: b\n", "  - a: b\n", "-\n", "kind: List\n",
	"\r", "a\tb\n", "a: \u2028\n", "\x00", "\xef\xbb\xbf", "*a\n", "- kind: Pod\n  apiVersion: v1\n", "---\nkind: Pod\napiVersion: v1\n",
}

// withStrayLine returns a text with such a line, or without its last line end.
func withStrayLine(r *rand.Rand, text string) string {
	lines := strings.SplitAfter(text, "\n")
	at := r.IntN(len(lines) + 1)
	switch r.IntN(8) {
	case 0:
		return strings.TrimSuffix(text, "\n")
	case 1:
		at = 0
	case 2:
		at = len(lines)
	}
	return strings.Join(slices.Insert(lines, at, strayLines[r.IntN(len(strayLines))]), "")
}

// TestEdits: a file that is read again after an edit gives what it gives when it is read for the
// first time.
func TestEdits(t *testing.T) {
	for _, list := range []bool{false, true} {
		t.Run(fmt.Sprintf("list %v", list), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "services.yaml")
			e := edited{t: t, path: path, again: &Reader{Paths: []string{path}, follows: true}}
			r := rand.New(rand.NewPCG(3, 4))
			for _, text := range edits(list, 12, 80) {
				e.to(text)
				if r.IntN(2) == 0 {
					e.to(withStrayLine(r, text))
				}
			}
			if e.problems == 0 {
				t.Errorf("none of %d edits had a problem", e.edits)
			}
		})
	}
}

// edited is a file that is edited.
type edited struct {
	t               *testing.T
	path            string
	again           *Reader
	edits, problems int
}

// to edits the file, and compares what the reader gives with what another one does.
func (e *edited) to(text string) {
	e.t.Helper()
	e.edits++
	if err := os.WriteFile(e.path, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	got, err := e.again.Load()
	want, wantErr := (&Reader{Paths: []string{e.path}}).Load()
	if diff := cmp.Diff(fmt.Sprint(wantErr), fmt.Sprint(err)); diff != "" {
		e.t.Fatalf("edit %d (-first +again):\n%s\n%s", e.edits, diff, text)
	}
	if err != nil {
		e.problems++
		return
	}
	gotPlaces, wantPlaces := got.Places(), want.Places()
	got.contents, want.contents = nil, nil // with lines of their own
	if !reflect.DeepEqual(got, want) || !maps.Equal(gotPlaces, wantPlaces) {
		e.t.Fatalf("edit %d gives\n%q\n%v\nwant\n%q\n%v\n%s", e.edits, got.Warnings.Lines(), gotPlaces, want.Warnings.Lines(), wantPlaces, text)
	}
}

// TestListWithAlias: a List of which an item needs another one is read as a whole.
func TestListWithAlias(t *testing.T) {
	const text = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: a}
  spec: {clusterIP: 10.96.0.1, ports: &ports [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {name: b}
  spec: {clusterIP: 10.96.0.2, ports: *ports}
`
	for _, follows := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "services.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f := &Reader{Paths: []string{path}, follows: follows}
		for range 2 {
			if in, err := f.Load(); err != nil || len(in.Snapshot.Services) != 2 || len(in.Snapshot.Services[1].Ports) != 1 {
				t.Errorf("follows %v: %+v, %v", follows, in, err)
			}
		}
	}
}
