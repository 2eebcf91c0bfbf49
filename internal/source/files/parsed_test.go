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

	"github.com/nftproxy/nftproxy/internal/model"
)

// A change of one file costs that file: what was read from the others is used again,
// with the same warnings.
func TestUnchangedFileIsNotParsedAgain(t *testing.T) {
	dir := t.TempDir()
	write := func(name, address string) {
		t.Helper()
		text := fmt.Sprintf("{kind: Service, apiVersion: v1, metadata: {name: %s}, spec: {clusterIP: %s, ports: [{port: 80}]}}\n", name, address)
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "10.96.0.1")
	write("b", "10.96.0.2")
	f := &Reader{Paths: []string{dir}, follows: true}
	load := func() *Input {
		t.Helper()
		in, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	first := load()
	write("b", "10.96.0.3")
	second := load()
	if first.Snapshot.Services[0] != second.Snapshot.Services[0] {
		t.Error("the unchanged file was parsed again")
	}
	if got := second.Snapshot.Services[1].ClusterIPs[0].String(); got != "10.96.0.3" {
		t.Errorf("the changed file gives %s", got)
	}
	if len(first.Warnings) == 0 || len(first.Warnings) != len(second.Warnings) {
		t.Errorf("warnings were %v and are %v", first.Warnings, second.Warnings)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if third := load(); len(third.Snapshot.Services) != 1 || len(f.known.files) > 1 {
		t.Errorf("after a file was removed: %d Services, %d documents kept", len(third.Snapshot.Services), len(f.known.files))
	}
}

// The same holds for the documents of a file, also where others move them: messages have the
// lines of today.
func TestUnchangedDocumentIsNotParsedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "services.yaml")
	f := &Reader{Paths: []string{path}, follows: true}
	load := func(names ...string) *Input {
		t.Helper()
		var text strings.Builder
		for _, name := range names {
			fmt.Fprintf(&text, "---%s\n{kind: Service, apiVersion: v1, metadata: {name: %s}, spec: {type: LoadBalancer, clusterIP: 10.96.0.1, ports: [{port: 80}]}}\n", name[:len(name)-1], name[len(name)-1:])
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	first, second, third := load("a", "b"), load("c", "b"), load("\na", "b")
	if first.Snapshot.Services[1] != second.Snapshot.Services[1] || first.Snapshot.Services[0] == second.Snapshot.Services[0] {
		t.Error("the unchanged document was parsed again, or the changed one was not")
	}
	if in := third; in.Snapshot.Services[1] != second.Snapshot.Services[1] || !strings.Contains(in.Warnings.Lines()[2], "(line 5)") {
		t.Errorf("a document that moved was parsed again, or has another line: %q", in.Warnings.Lines())
	}
}

// TestUse: what is known of a file after loads, and which of them has read it.
func TestUse(t *testing.T) {
	const ( // a load; + is one that uses the file
		fails        = '-'
		rejects      = 'x' // another text of the file is used
		without      = '0' // the file is gone
		failsWithout = 'o'
		nothing      = ""
	)
	for loads, want := range map[string]string{
		"+": "inUse 0", "-": "tried 0", "x": "tried 0", "++": "inUse 1",
		"-+": "inUse 1", "x+": "inUse 1", "--": "tried 1", "xx": "tried 1",
		"+-": "inUse 0", "+x": "inUse 0", "+--": "inUse 0", "+xx": "inUse 0", "+-+": "inUse 2", "+x+": "inUse 2",
		"+0": nothing, "+o": "inUse 0", "+oo": "inUse 0", "+o-": "inUse 0", "+o0": nothing, "+x0": nothing, "+xo": "inUse 0",
		"-0": nothing, "-o": nothing, "x0": nothing, "xo": nothing, "+0-": "tried 2", "-o+": "inUse 2",
	} {
		var d documents
		for i, load := range loads {
			d.begin()
			if load != without && load != failsWithout {
				d.keep("a.yaml", &known{docs: parts{all: []part{{line: int32(i)}}}})
			}
			if load == rejects {
				d.reject("a.yaml")
			}
			d.end(load == fails || load == failsWithout)
		}
		got := nothing
		if k := d.files["a.yaml"]; k != nil {
			got = fmt.Sprint(map[use]string{tried: "tried ", inUse: "inUse "}[k.use], k.docs.all[0].line)
		}
		if got != want {
			t.Errorf("after %s: %q, want %q", loads, got, want)
		}
	}
}

// TestUndo: a file that was read again in parts is as it was before, if the load does not use it.
func TestUndo(t *testing.T) {
	for _, list := range []bool{false, true} {
		for _, blocks := range []int{1, 200, 1000, 0} {
			t.Run(fmt.Sprintf("list %v blocks %d", list, blocks), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "services.yaml")
				f := &Reader{Paths: []string{path}, follows: true, blocks: blocks}
				undone := 0
				texts := edits(list, 60)
				for i, text := range texts[1:] {
					check(t, os.WriteFile(path, []byte(texts[i]), 0o600))
					if _, err := f.Load(); err != nil {
						continue
					}
					k := f.known.files[path]
					before := *k
					before.docs.all, before.layout.blocks = slices.Clone(k.docs.all), slices.Clone(k.layout.blocks)
					if list {
						items := *k.layout.list
						items.all = slices.Clone(items.all)
						before.layout.list = &items
					}
					check(t, os.WriteFile(path, []byte(text), 0o600))
					f.known.begin()
					f.parse(file{name: path, path: path})
					if k.back != nil {
						undone++
					}
					f.known.end(true)
					same := reflect.DeepEqual(before.parts().all, k.parts().all) && reflect.DeepEqual(before.layout.blocks, k.layout.blocks)
					if !same || before.layout.end != k.layout.end || before.layout.ended != k.layout.ended || f.known.files[path] != k {
						t.Fatalf("%+v, want %+v", k, before)
					}
				}
				if blocks == 1 && undone < len(texts)/4 {
					t.Errorf("%d edits were undone", undone)
				}
			})
		}
	}
}

// edits returns texts of a file, each made of the one before by an edit.
func edits(list bool, n int) (texts []string) {
	r := rand.New(rand.NewPCG(1, 2))
	var objects []string
	for i := range 12 {
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
// first time, however large the blocks are that are compared.
func TestEdits(t *testing.T) {
	for _, list := range []bool{false, true} {
		for _, blocks := range []int{1, 200, 1000, 0} {
			t.Run(fmt.Sprintf("list %v blocks %d", list, blocks), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "services.yaml")
				e := edited{t: t, path: path, again: &Reader{Paths: []string{path}, follows: true, blocks: blocks}}
				r := rand.New(rand.NewPCG(3, uint64(blocks)))
				for _, text := range edits(list, 80) {
					e.to(text)
					if r.IntN(2) == 0 {
						e.to(withStrayLine(r, text))
					}
				}
				t.Logf("%d edits, %d with problems, %d of blocks", e.edits, e.problems, e.ofBlocks)
				if e.problems == 0 || blocks > 0 && blocks < 1000 && e.ofBlocks < e.edits/5 {
					t.Errorf("of %d edits, %d had a problem, and of %d only some blocks were read", e.edits, e.problems, e.ofBlocks)
				}
			})
		}
	}
}

// TestEditsOfComments: a block may have no document, and the lines of the next ones are right.
func TestEditsOfComments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "services.yaml")
	e := edited{t: t, path: path, again: &Reader{Paths: []string{path}, follows: true, blocks: 1}}
	r := rand.New(rand.NewPCG(1, 2))
	objects := []string{editedObject(r, 1), editedObject(r, 2), editedObject(r, 3), editedObject(r, 4)}
	for _, second := range []string{objects[1], "# none\n", "# none\n# of these\n", editedObject(r, 5), "", objects[1]} {
		e.to(fileOf(false, []string{objects[0], second, objects[2], objects[3]}))
	}
	if e.ofBlocks != e.edits-1 {
		t.Errorf("of %d edits, %d were of blocks", e.edits, e.ofBlocks)
	}
}

// edited is a file that is edited.
type edited struct {
	t     *testing.T
	path  string
	again *Reader
	// ofBlocks are the edits of which the reader did not read the whole file.
	edits, problems, ofBlocks int
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
	if got.contents[0].edit != nil {
		e.ofBlocks++
	}
	gotPlaces, wantPlaces := got.Places(), want.Places()
	got.contents, want.contents = nil, nil // of which one has sums
	if !reflect.DeepEqual(got, want) || !maps.Equal(gotPlaces, wantPlaces) {
		e.t.Fatalf("edit %d gives\n%q\n%v\nwant\n%q\n%v\n%s", e.edits, got.Warnings.Lines(), gotPlaces, want.Warnings.Lines(), wantPlaces, text)
	}
}

// TestItemIsNotParsedAgain: of a List, only the items that an edit concerns are parsed.
func TestItemIsNotParsedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "services.yaml")
	f := &Reader{Paths: []string{path}, follows: true}
	r := rand.New(rand.NewPCG(1, 2))
	objects := []string{editedObject(r, 1), editedObject(r, 2), editedObject(r, 3)}
	load := func() []*model.Service {
		t.Helper()
		if err := os.WriteFile(path, []byte(fileOf(true, objects)), 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		return in.Snapshot.Services
	}
	before := load()
	same := load() // the whole file is
	objects[1] += "# moves the others\n"
	objects = append(objects, editedObject(r, 4))
	after := load()
	if before[0] != same[0] || before[0] != after[0] || before[2] != after[2] || before[1] == after[1] {
		t.Errorf("Services %p, then %p and %p", before, same, after)
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
