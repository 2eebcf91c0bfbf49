package files

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/nftproxy/nftproxy/internal/manifest"
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
	timeout := time.After(10 * time.Second)
	for n := 1; ; n++ {
		select {
		case text := <-calls:
			if text == "last" {
				return
			}
			if n > 10 {
				t.Fatalf("100 writes in a burst made %d calls", n)
			}
		case <-timeout:
			t.Fatal("the change during the callback was lost")
		}
	}
}

// TestWatchJoinsWrites: a file that is written in thousands of small pieces takes few events.
func TestWatchJoinsWrites(t *testing.T) {
	t.Chdir(t.TempDir())
	writes("a.yaml")(t)
	w, err := NewWatcher("a.yaml")
	check(t, err)
	from, to, events := w.notify.Events, make(chan fsnotify.Event), new(atomic.Int64)
	w.notify.Events = to
	go func() {
		for e := range from {
			events.Add(1)
			to <- e
		}
	}()
	seen := make(views, 100)
	f, err := os.OpenFile("a.yaml", os.O_APPEND|os.O_WRONLY, 0)
	check(t, err)
	begin := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for w.wait(ctx) {
			seen <- view("a.yaml")
		}
	}()
	const pieces = 5000
	for range pieces {
		_, err := f.WriteString("x")
		check(t, err)
	}
	check(t, f.Close())
	seen.wait(t, "a.yaml")
	if n, most := events.Load(), int64(time.Since(begin)/joinTime)+10; n > most {
		t.Errorf("%d events for %d pieces, more than %d", n, pieces, most)
	}
	check(t, w.Close())
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
		if got := w.relevant(filepath.Join(here, name)); got != want {
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
	names, _, err := expand(path, &warnings)
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
	want, timeout := view(path), time.After(10*time.Second)
	for {
		select {
		case got := <-v:
			if got == want {
				return
			}
		case <-timeout:
			t.Fatalf("the change was not seen: %s", want)
		}
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
