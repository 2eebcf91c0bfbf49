package files

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// change is a way in which the content of a path changes. The files exist in
// a new directory, which is the working directory.
var changes = []struct {
	name  string
	path  string
	setUp func(t *testing.T)
	edit  func(t *testing.T)
}{
	{"write in place", "a.yaml", writes("a.yaml"), writes("a.yaml")},
	{"append", "a.yaml", writes("a.yaml"), func(t *testing.T) {
		f, err := os.OpenFile("a.yaml", os.O_APPEND|os.O_WRONLY, 0)
		check(t, err)
		_, err = f.WriteString("# more\n")
		check(t, err)
		check(t, f.Close())
	}},
	{"replace by rename", "a.yaml", writes("a.yaml"), both(writes("a.yaml.tmp"), renames("a.yaml.tmp", "a.yaml"))},
	{"backup and new file", "a.yaml", writes("a.yaml"), both(renames("a.yaml", "a.yaml~"), writes("a.yaml"))},
	{"delete", "a.yaml", writes("a.yaml"), removes("a.yaml")},
	{"create", "a.yaml", nothing, writes("a.yaml")},
	{"delete and create", "a.yaml", writes("a.yaml"), both(removes("a.yaml"), writes("a.yaml"))},
	{"create with its directories", "x/y/a.yaml", nothing, writes("x/y/a.yaml")},
	{"delete with its directory", "x/a.yaml", writes("x/a.yaml"), removes("x")},
	{"move its directory away", "x/y/a.yaml", writes("x/y/a.yaml"), renames("x", "z")},
	{"switch its directory", "x/a.yaml", both(writes("x/a.yaml"), writes("z/a.yaml")), both(renames("x", "old"), renames("z", "x"))},
	{"ConfigMap file", "conf/a.yaml", configMap, switchConfigMap},
	{"ConfigMap directory", "conf", configMap, switchConfigMap},
	{"link to another file", "a.yaml", both(writes("one/real.yaml"), links("one/real.yaml", "a.yaml")), links("two/real.yaml", "a.yaml")},
	{"file behind links", "a.yaml", both(both(writes("one/real.yaml"), links("one/real.yaml", "b.yaml")), links("b.yaml", "a.yaml")), writes("one/real.yaml")},
	{"link without file", "a.yaml", links("one/real.yaml", "a.yaml"), writes("one/real.yaml")},
	{"directory: add a file", "conf", writes("conf/a.yaml"), writes("conf/b.yml")},
	{"directory: write a file", "conf", writes("conf/a.yaml"), writes("conf/a.yaml")},
	{"directory: remove a file", "conf", writes("conf/a.yaml"), removes("conf/a.yaml")},
	{"directory: write behind a link", "conf", both(writes("one/real.yaml"), links("../one/real.yaml", "conf/a.yaml")), writes("one/real.yaml")},
	{"directory: create it", "conf", nothing, writes("conf/a.yaml")},
	{"directory: create it again", "conf", writes("conf/a.yaml"), both(removes("conf"), writes("conf/b.yaml"))},
	{"directory behind a link", "conf", both(writes("one/a.yaml"), links("one", "conf")), writes("one/b.yaml")},
	{"directory behind another link", "conf", both(both(writes("one/a.yaml"), writes("two/a.yaml")), links("one", "conf")), links("two", "conf")},
	{"directory in place of a file", "x/a.yaml", writes("x"), both(removes("x"), writes("x/a.yaml"))},
	{"write by another name", "a.yaml", both(writes("a.yaml"), func(t *testing.T) { check(t, os.Link("a.yaml", "other")) }), writes("other")},
	{"delete while it is open", "a.yaml", writes("a.yaml"), both(opens("a.yaml"), removes("a.yaml"))},
	{"replace while it is open", "a.yaml", both(writes("a.yaml"), writes("a.yaml.tmp")), both(opens("a.yaml"), renames("a.yaml.tmp", "a.yaml"))},
	{"create with its directory, of which one was open", "x/a.yaml", mkdir("x"), both(both(opens("x"), removes("x")), writes("x/a.yaml"))},
	{"directory: create while it was open", "conf", mkdir("conf"), both(both(opens("conf"), removes("conf")), writes("conf/a.yaml"))},
	{"directory: delete while it is open", "x/conf", mkdir("x/conf"), both(opens("x/conf"), removes("x"))},
	{"make readable", "a.yaml", writes("a.yaml"), func(t *testing.T) { check(t, os.Chmod("a.yaml", 0o644)) }},
}

func TestWatch(t *testing.T) {
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			c.setUp(t)
			seen := watch(t, c.path)
			c.edit(t)
			seen.wait(t, c.path)
			// The second round shows that the watches have followed.
			entries, err := os.ReadDir(".")
			check(t, err)
			for _, e := range entries {
				check(t, os.RemoveAll(e.Name()))
			}
			c.setUp(t)
			seen.wait(t, c.path)
			c.edit(t)
			seen.wait(t, c.path)
		})
	}
}

// TestWatchRandom: after any change of a small tree, the watcher has shown the path as it is.
func TestWatchRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"x", "y", "x/a.yaml", "y/a.yaml", "x/z/a.yaml", "x/z", "y/z", "link", "x/link", "y/b.yaml"}
	for _, path := range []string{"x/a.yaml", "link/a.yaml", "x/z", "x/link/z/a.yaml"} {
		t.Run(path, func(t *testing.T) {
			t.Chdir(t.TempDir())
			seen := watch(t, path)
			for range 150 {
				before, what := view(path), ""
				for range 1 + r.IntN(3) {
					from, to := names[r.IntN(len(names))], names[r.IntN(len(names))]
					switch r.IntN(5) {
					case 0:
						_ = os.RemoveAll(from)
						what += " remove " + from
					case 1:
						_ = os.Rename(from, to)
						what += " rename " + from + " " + to
					case 2:
						_ = os.Symlink(to, from)
						what += " link " + from + " " + to
					default:
						_ = os.MkdirAll(filepath.Dir(from), 0o700)
						_ = os.WriteFile(from, []byte(strconv.Itoa(r.Int())), 0o600)
						what += " write " + from
					}
				}
				if view(path) != before {
					t.Log(what)
					seen.wait(t, path)
				}
			}
		})
	}
}

// TestWatchBurst merges changes that come together, and sees one that comes
// while the callback runs.
func TestWatchBurst(t *testing.T) {
	t.Chdir(t.TempDir())
	writes("a.yaml")(t)
	w, err := NewWatcher("a.yaml")
	check(t, err)
	for range 100 {
		writes("a.yaml")(t)
	}
	calls := make(chan string, 100)
	start(t, w, func() {
		data, err := os.ReadFile("a.yaml")
		calls <- string(data)
		if err == nil && string(data) != "last" {
			_ = os.WriteFile("a.yaml", []byte("last"), 0o600)
		}
	})
	for n := 1; await.Receive(t, calls, "call for the change during a call") != "last"; n++ {
		if n > 10 {
			t.Fatalf("100 writes in a burst made %d calls", n)
		}
	}
}

// TestWatchJoinsWrites: a file that is written in thousands of small pieces takes few reads of events.
func TestWatchJoinsWrites(t *testing.T) {
	t.Chdir(t.TempDir())
	writes("a.yaml")(t)
	n, reads, ended := inotifyOf(t, "a.yaml"), 0, make(chan struct{})
	f, err := os.OpenFile("a.yaml", os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	begin := time.Now()
	go func() {
		n.run(func(string) bool { return false }) // it is watched itself
		close(n.changed)
	}()
	go func() {
		for range n.changed {
			reads++
		}
		close(ended)
	}()
	const pieces = 5000
	for range pieces {
		_, err := f.WriteString("x")
		check(t, err)
	}
	check(t, f.Close())
	check(t, n.file.Close())
	<-ended
	if most := int(time.Since(begin)/joinTime) + 10; reads == 0 || reads > most {
		t.Errorf("%d reads for %d pieces, more than %d", reads, pieces, most)
	}
}

// inotifyOf returns an instance with the watches of paths.
func inotifyOf(t *testing.T, paths ...string) *inotify {
	t.Helper()
	n, err := newInotify()
	check(t, err)
	t.Cleanup(func() { _ = n.file.Close() })
	for i := range paths {
		paths[i], err = filepath.Abs(paths[i])
		check(t, err)
	}
	for name, mask := range surveyPaths(paths) {
		check(t, n.add(name, mask))
	}
	return n
}

// TestWatchNeighbours: what happens to other files beside a file makes no event.
func TestWatchNeighbours(t *testing.T) {
	t.Chdir(t.TempDir())
	configMap(t)
	for _, name := range []string{"dir/a.yaml", "dir/log", "other/b.yaml"} {
		writes(name)(t)
	}
	links("other/b.yaml", "b.yaml")(t)
	n := inotifyOf(t, "dir/a.yaml", "b.yaml", "conf/a.yaml")
	waiting := func() int {
		t.Helper()
		bytes, err := unix.IoctlGetInt(n.fd, unix.TIOCINQ)
		check(t, err)
		return bytes
	}
	for _, dir := range []string{".", "dir", "other", "conf", "conf/..2026_01"} {
		log := filepath.Join(dir, "log")
		for what, happens := range map[string]func(*testing.T){
			"write": writes(log), "replace": both(writes(log+".new"), renames(log+".new", log)), "remove": removes(log),
			"directory": both(writes(log+".d/x"), removes(log+".d")), "link": both(links("x", log+".l"), removes(log+".l")),
			"chmod": both(writes(log), func(t *testing.T) { check(t, os.Chmod(log, 0o644)) }),
		} {
			if happens(t); waiting() > 0 {
				t.Fatalf("%s %s makes an event", what, log)
			}
		}
	}
	for _, name := range []string{"dir/a.yaml", "other/b.yaml", "conf/..2026_01/a.yaml"} {
		before := waiting()
		if writes(name)(t); waiting() == before {
			t.Errorf("a write to %s makes no event", name)
		}
	}
}

// TestWatchOtherFiles does not wake for files that are not read.
func TestWatchOtherFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	writes("conf/a.yaml")(t)
	w, err := NewWatcher("conf", "b.yaml", "-")
	check(t, err)
	defer func() { check(t, w.Close()) }()
	here, err := os.Getwd()
	check(t, err)
	for name, want := range map[string]bool{
		"conf/a.yaml": true, "conf/new.json": true, "b.yaml": true, "conf": true,
		"conf/.a.yaml.swp": false, "conf/a.yaml~": false, "conf/README": false, "c.yaml": false,
	} {
		if got := surveyPaths(w.paths).isRelevant(filepath.Join(here, name)); got != want {
			t.Errorf("relevant(%s) = %t, want %t", name, got, want)
		}
	}
}

func TestWatchLinkLoop(t *testing.T) {
	t.Chdir(t.TempDir())
	links("b.yaml", "a.yaml")(t)
	links("a.yaml", "b.yaml")(t)
	seen := watch(t, "a.yaml")
	removes("b.yaml")(t)
	seen.wait(t, "a.yaml")
}

// views are what a path gave, at each call of the watcher.
type views chan string

// watch runs a watcher until the end of the test.
func watch(t *testing.T, path string) views {
	t.Helper()
	w, err := NewWatcher(path)
	check(t, err)
	v := make(views, 100)
	start(t, w, func() { v <- view(path) })
	return v
}

// view prints the files that a path gives, as far as they can be read.
func view(path string) string {
	var warnings manifest.Errors
	names, _, err := expandPath(path, &warnings)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(name)
		info, _ := os.Stat(name)
		fmt.Fprintln(&b, name, string(data), err, info != nil && info.Mode().Perm() == 0o644)
	}
	return b.String()
}

// wait returns when the watcher has shown the path as it is now.
func (v views) wait(t *testing.T, path string) {
	t.Helper()
	for want := view(path); await.Receive(t, v, "call with the content "+want) != want; {
	}
}

func start(t *testing.T, w *Watcher, changed func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx, changed) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-ended)
	})
}

func nothing(t *testing.T) {}

func both(first, second func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		first(t)
		second(t)
	}
}

func writes(name string) func(*testing.T) {
	return func(t *testing.T) {
		check(t, os.MkdirAll(filepath.Dir(name), 0o700))
		check(t, os.WriteFile(name, []byte(strconv.Itoa(rand.Int())), 0o600))
	}
}

func renames(from, to string) func(*testing.T) {
	return func(t *testing.T) {
		check(t, os.RemoveAll(to))
		check(t, os.Rename(from, to))
	}
}

func removes(name string) func(*testing.T) {
	return func(t *testing.T) { check(t, os.RemoveAll(name)) }
}

// opens has a file or directory open until the end of the test.
func opens(name string) func(*testing.T) {
	return func(t *testing.T) {
		f, err := os.Open(name)
		check(t, err)
		t.Cleanup(func() { check(t, f.Close()) })
	}
}

func mkdir(name string) func(*testing.T) {
	return func(t *testing.T) { check(t, os.MkdirAll(name, 0o700)) }
}

// links makes a symbolic link, or replaces one by renaming.
func links(target, name string) func(*testing.T) {
	return func(t *testing.T) {
		check(t, os.MkdirAll(filepath.Dir(name), 0o700))
		check(t, os.RemoveAll(name+".tmp"))
		check(t, os.Symlink(target, name+".tmp"))
		check(t, os.Rename(name+".tmp", name))
	}
}

// configMap lays out a directory as the kubelet mounts a ConfigMap.
func configMap(t *testing.T) {
	writes("conf/..2026_01/a.yaml")(t)
	links("..2026_01", "conf/..data")(t)
	links("..data/a.yaml", "conf/a.yaml")(t)
}

// switchConfigMap updates it as the kubelet does.
func switchConfigMap(t *testing.T) {
	writes("conf/..2026_02/a.yaml")(t)
	links("..2026_02", "conf/..data")(t)
	removes("conf/..2026_01")(t)
}
