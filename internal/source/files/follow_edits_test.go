package files

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// slicedObjects returns texts of a Service and of its slices. It has warnings if they do not fit.
func slicedObjects(r *rand.Rand, i int) (texts []string) {
	port := []string{"http", "http", "http", "htp"}[r.IntN(4)]
	if r.IntN(60) > 0 {
		texts = append(texts, fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata:\n  name: s%d\nspec:\n  clusterIP: 10.96.0.%d\n  ports:\n  - name: http\n    port: 80\n", i, i))
	}
	for j := range r.IntN(3) {
		texts = append(texts, fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: s%d-%d\n  labels:\n    kubernetes.io/service-name: s%d\naddressType: IPv4\nports:\n- name: %s\n  port: 8080\nendpoints:\n- addresses:\n  - 10.128.%d.%d\n", i, j, i, port, i, j))
	}
	if r.IntN(8) == 0 {
		texts = append(texts, fmt.Sprintf("kind: Balance\nname: b%d\nlisten: 203.0.113.%d:80\nbackends:\n- 10.129.0.%d\n", i, i, i))
	}
	return texts
}

// slicedEdits returns texts of a file, each made of the one before by an edit.
func slicedEdits(r *rand.Rand, list bool, n int) (texts []string) {
	objects := []string{"apiVersion: v1\nkind: Node\nmetadata:\n  name: node-1\n"}
	for i := range 12 {
		objects = append(objects, slicedObjects(r, i)...)
	}
	for i := range n {
		at := r.IntN(len(objects))
		switch r.IntN(8) {
		case 0, 1:
			objects = slices.Insert(objects, at, slicedObjects(r, 20+i%200)...)
		case 2:
			texts = append(texts, fileOf(list, slices.Delete(slices.Clone(objects), at, at+1)))
		case 3:
			objects[at] += "# a comment\n"
		case 4:
			objects[at] = strings.Replace(objects[at], "port: 80", "port: 81", 1)
		case 5:
			objects[at], objects[0] = objects[0], objects[at]
		case 6:
			extra := []string{"kind: Pod\napiVersion: v1\n", "apiVersion: v1\nkind: Endpoints\nmetadata:\n  name: s1\nsubsets:\n- addresses:\n  - ip: 10.130.0.1\n  ports:\n  - port: 8080\n", objects[at]}[r.IntN(3)]
			texts = append(texts, fileOf(list, append(slices.Clone(objects), extra)))
		case 7: // not written whole
			text := fileOf(list, objects)
			texts = append(texts, text[:r.IntN(len(text))])
		}
		texts = append(texts, fileOf(list, objects))
	}
	return texts
}

// TestInterruptedEdit: what is read while a file is written is not remembered: the edit is a change of
// one Service, as if it had been seen whole, and the other Services are the same values.
func TestInterruptedEdit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var objects []string
	for i := range 30 {
		objects = append(objects, editedObject(r, i))
	}
	for name, list := range map[string]bool{"documents": false, "list": true} {
		text := fileOf(list, objects)
		for during, write := range map[string]func(path string) error{
			"empty": func(path string) error { return os.Truncate(path, 0) },
			"cut":   func(path string) error { return os.Truncate(path, int64(strings.Index(text, "96.0.15"))) },
			"gone":  os.Remove,
		} {
			t.Run(name+" "+during, func(t *testing.T) {
				s, path := follow(t, []byte(text))
				_, err := s.Load()
				check(t, err)
				first := s.Lookup(nil)[model.ServiceName{Namespace: "default", Name: "s1"}].Service
				for round := range 2 {
					check(t, write(path))
					if _, err := s.Load(); err == nil {
						t.Fatal("no problem")
					}
					check(t, os.WriteFile(path, []byte(strings.Replace(text, "10.96.0.9\n", fmt.Sprintf("10.98.0.%d\n", round), 1)), 0o600))
					u, err := s.Load()
					check(t, err)
					if len(u.Services) != 1 || s.Lookup(nil)[first.Name].Service != first {
						t.Errorf("round %d: %d Services changed, another one is a new value: %t", round, len(u.Services), s.Lookup(nil)[first.Name].Service != first)
					}
				}
			})
		}
	}
}

// comparison compares a follower with readers that read all for the first time.
type comparison struct {
	t      *testing.T
	s      *followed
	states map[model.ServiceName]model.ServiceState // in use
	// loads of these kinds, and warnings
	failed, warned int
}

// load loads the files that were edited. The follower then has the states, the changes and the
// warnings of a reader; it has the same problem, if the reader has one. The files of that may be in
// another directory.
func (c *comparison) load(what string, want func() *Reader) error {
	c.t.Helper()
	u, err := c.s.Load()
	reader := want()
	in, wantErr := reader.Load()
	here := strings.NewReplacer(reader.Paths[0], c.s.files.Paths[0])
	if fmt.Sprint(err) != here.Replace(fmt.Sprint(wantErr)) {
		c.t.Fatalf("%s: %v, want %v", what, err, wantErr)
	}
	if err != nil {
		c.failed++
		if !reflect.DeepEqual(c.s.Lookup(nil), c.states) && c.states != nil {
			c.t.Fatalf("%s: a load that failed has changed the states from %v to %v", what, c.states, c.s.Lookup(nil))
		}
		return err
	}
	changes, now := in.Snapshot.Since(c.states)
	c.states = maps.Clone(now)
	if !reflect.DeepEqual(u.Services, changes.Services) || !reflect.DeepEqual(u.Nodes, changes.Nodes) || !reflect.DeepEqual(c.s.Lookup(nil), now) {
		c.t.Fatalf("%s gives %v, want %v, and states %v, want %v", what, u.Services, changes.Services, c.s.Lookup(nil), now)
	}
	problems, _ := in.Warnings.Split()
	lines := problems.Lines()
	for i := range lines {
		lines[i] = here.Replace(lines[i])
	}
	if got := c.s.State().Warnings; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(lines))) {
		c.t.Fatalf("%s warns of\n%q, want\n%q", what, got, lines)
	}
	c.warned += len(problems)
	return nil
}

// TestFollowEdits: after each edit, a follower has the states, the changes and the warnings of a
// reader that reads all for the first time.
func TestFollowEdits(t *testing.T) {
	for _, list := range []bool{false, true} {
		t.Run(fmt.Sprintf("list %v", list), func(t *testing.T) {
			texts := slicedEdits(rand.New(rand.NewPCG(5, 6)), list, 200)
			s, path := follow(t, []byte(texts[0]))
			c := comparison{t: t, s: s}
			for i, text := range texts {
				check(t, os.WriteFile(path, []byte(text), 0o600))
				_ = c.load(fmt.Sprintf("edit %d to\n%s\n", i, text), func() *Reader { return &Reader{Paths: []string{path}} })
			}
			if c.failed == 0 || c.warned == 0 {
				t.Errorf("%d texts, %d problems, %d warnings", len(texts), c.failed, c.warned)
			}
		})
	}
}
