package files

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
)

// faulty is a directory of files that are edited, some of them to texts with faults.
type faulty struct {
	r       *rand.Rand
	dir     string
	objects map[string][]string // of each file, without its faults
	next    int                 // number of the next object
	shared  bool                // files have pools and defaults for others, and objects of others
}

func newFaulty(t *testing.T, r *rand.Rand, files int, shared bool) *faulty {
	f := &faulty{r: r, dir: t.TempDir(), objects: make(map[string][]string), shared: shared}
	for i := range files {
		name := fmt.Sprintf("f%d.yaml", i)
		for range 4 {
			f.add(name)
		}
		f.write(t, name, "")
	}
	return f
}

// add adds objects to a file.
func (f *faulty) add(name string) {
	texts := slicedObjects(f.r, f.next%250)
	if f.next++; f.shared {
		switch n := f.next; {
		case n <= 3:
			texts = append(texts, fmt.Sprintf("kind: Servers\nname: pool%d\nservers: [10.1.%d.1, 10.1.%d.2]\n", n, n, n))
		case n%3 == 0:
			texts = append(texts, fmt.Sprintf("kind: Balance\nname: pooled%d\nlisten: 203.0.113.%d:81\nbackends: {servers: pool%d, port: 8080}\n", n, n%250, 1+f.r.IntN(3)))
		case n%10 == 0:
			texts = append(texts, "kind: Defaults\ncheck: tcp\n")
		}
	}
	f.objects[name] = append(f.objects[name], texts...)
}

// write writes a file with its objects, and with a fault.
func (f *faulty) write(t *testing.T, name, fault string) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(f.dir, name), []byte(fileOf(f.r.IntN(4) == 0, f.objects[name])+fault), 0o600))
}

// faults follow the objects of a file.
var faults = []string{brokenService + "\n", "---\n" + brokenService, "---\nkind: Service\n", "\x00", "x", "---\nkind: Defaults\nclients: 1\n"}

// edit changes a file, and says how.
func (f *faulty) edit(t *testing.T) string {
	t.Helper()
	names := slices.Sorted(maps.Keys(f.objects))
	if len(names) == 0 {
		names = []string{"f0.yaml"}
	}
	name := names[f.r.IntN(len(names))]
	path, objects := filepath.Join(f.dir, name), f.objects[name]
	at := f.r.IntN(len(objects) + 1)
	what := []string{"add", "change", "remove an object", "fault", "fault", "cut", "empty", "gone", "rename", "object of another file", "comment", "other kind", "exchange"}[f.r.IntN(13)]
	switch {
	case what == "change" && at < len(objects):
		objects[at] = strings.NewReplacer("port: 80\n", "port: 81\n", "port: 81\n", "port: 80\n", "10.1.", "10.2.").Replace(objects[at])
		f.write(t, name, "")
	case what == "remove an object" && len(objects) > 1 && at < len(objects):
		f.objects[name] = slices.Delete(objects, at, at+1)
		f.write(t, name, "")
	case what == "fault":
		f.write(t, name, faults[f.r.IntN(len(faults))])
	case what == "cut":
		text := fileOf(false, objects)
		check(t, os.WriteFile(path, []byte(text[:f.r.IntN(len(text))]), 0o600))
	case what == "empty":
		check(t, os.WriteFile(path, nil, 0o600))
	case what == "gone" && len(names) > 1:
		check(t, os.RemoveAll(path))
		delete(f.objects, name)
	case what == "rename":
		to := fmt.Sprintf("r%d.yaml", f.r.IntN(4))
		if _, taken := f.objects[to]; taken {
			return "nothing"
		}
		f.objects[to] = objects
		delete(f.objects, name)
		check(t, os.Rename(path, filepath.Join(f.dir, to)))
	case what == "object of another file" && f.shared:
		other := f.objects[names[f.r.IntN(len(names))]]
		f.write(t, name, "---\n"+other[f.r.IntN(len(other))])
	case what == "comment":
		f.write(t, name, "# a comment\n")
	case what == "other kind":
		f.write(t, name, "---\n"+otherKind)
	case what == "exchange" && len(names) > 1:
		other := names[(slices.Index(names, name)+1)%len(names)]
		f.objects[name], f.objects[other] = f.objects[other], f.objects[name]
		f.write(t, name, "")
		f.write(t, other, "")
	default:
		f.add(name)
		f.write(t, name, "")
	}
	return what + " " + name
}

// TestFollowFaults: whatever happens to files, a follower has what a reader gives that reads all for
// the first time, also after a restart. With isolation, that reader is given the last valid texts of
// files with faults, which are kept for the next process.
func TestFollowFaults(t *testing.T) {
	for _, files := range []int{1, 3, 5} {
		for _, shared := range []bool{false, true} {
			for _, isolated := range []bool{false, true} {
				t.Run(fmt.Sprintf("files %d shared %t isolated %t", files, shared, isolated), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(files), 7))
					f := newFaulty(t, r, files, shared)
					e := &expected{t: t, f: f, valid: make(map[string]string)}
					if isolated {
						e.kept = &Kept{filepath.Join(t.TempDir(), "valid")}
					}
					e.restart()
					for i := range 50 {
						what := fmt.Sprintf("edit %d (%s)", i, f.edit(t))
						if r.IntN(20) == 0 {
							what += " and restart"
							e.restart()
						}
						if isolated {
							check(t, e.load(what, func() *Reader { return e.inUse(what) }))
						} else {
							_ = e.load(what, func() *Reader { return &Reader{Paths: []string{f.dir}} })
						}
					}
					t.Logf("%d failed, %d warnings, %d replaced, %d left out", e.failed, e.warned, e.replaced, e.leftOut)
					if e.warned == 0 || e.replaced+e.leftOut+e.failed < 8 {
						t.Error("few faults were tested")
					}
				})
			}
		}
	}
}

// expected is what is in use of files.
type expected struct {
	comparison
	t     *testing.T
	f     *faulty
	kept  *Kept
	valid map[string]string // the last valid text of each file
	// files with faults
	replaced, leftOut int
}

// restart begins a process.
func (e *expected) restart() {
	files := &Reader{Paths: []string{e.f.dir}}
	if e.kept != nil {
		files.Isolation = NewIsolation(e.kept)
	}
	e.comparison.t, e.s, e.states = e.t, followOf(files), nil
}

// inUse returns a reader of what is in use of each file.
func (e *expected) inUse(what string) *Reader {
	e.t.Helper()
	advice := e.advice()
	inUse := e.t.TempDir()
	entries, err := os.ReadDir(e.f.dir)
	check(e.t, err)
	present := make(map[string]bool)
	for _, entry := range entries {
		name := entry.Name()
		present[name] = true
		text, err := os.ReadFile(filepath.Join(e.f.dir, name))
		check(e.t, err)
		_, alone := (&Reader{Paths: []string{filepath.Join(e.f.dir, name)}}).Load()
		if unused := advice[name] != ""; !e.f.shared && unused != (alone != nil) {
			e.t.Fatalf("%s: %s is replaced: %q, and its problem is %v\n%s", what, name, advice[name], alone, text)
		} else if !unused {
			e.valid[name] = string(text)
		}
	}
	for name := range e.valid {
		if !present[name] && advice[name] == "" {
			delete(e.valid, name)
		}
	}
	for name, text := range e.valid {
		if advice[name] != leftOut {
			check(e.t, os.WriteFile(filepath.Join(inUse, name), []byte(text), 0o600))
		}
	}
	kept := make(map[string]string)
	check(e.t, e.kept.all(func(name string, text []byte, _ bool) { kept[filepath.Base(name)] = string(text) }))
	if !maps.Equal(kept, e.valid) {
		e.t.Fatalf("%s: %q is kept, want %q", what, kept, e.valid)
	}
	return &Reader{Paths: []string{inUse}, InForce: []model.InForce{}}
}

// advice returns what is used of each file with a fault.
func (e *expected) advice() map[string]string {
	out := make(map[string]string)
	var problems manifest.Errors
	errors.As(e.s.State().Err, &problems)
	for _, p := range problems {
		for advice, count := range map[string]*int{leftOut: &e.leftOut, lastValid: &e.replaced} {
			if strings.HasSuffix(p.Err.Error(), "("+advice+")") {
				out[filepath.Base(p.File)] = advice
				*count++
			}
		}
	}
	return out
}
