package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// watched has steps after each of which a file has changed.
type watched chan func()

func (w watched) Run(_ context.Context, changed func()) error {
	for step := range w {
		step()
		changed()
	}
	return nil
}

// unwatched is a file that cannot be watched.
type unwatched struct{}

func (unwatched) Run(context.Context, func()) error { return errors.New("no watch is left") }

// idle is a node that serves nothing.
type idle struct{}

func (idle) Changed()                {}
func (idle) Words() words.Vocabulary { return words.Kubernetes }

// 9.22: the last list stays in force while the file cannot be used or does not exist.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drain.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("kind: Drain\nendpoints: [{endpoint: 10.0.0.2}]")
	var log bytes.Buffer
	steps := make(chan func())
	f := Follow(File{Path: path}, watched(steps), idle{}, slog.New(slog.NewTextHandler(&log, nil)))
	if got := f.List().names(); got != "10.0.0.2" {
		t.Errorf("at the start: %s", got)
	}
	changes := 0
	ended := make(chan struct{})
	go func() {
		f.Run(context.Background(), func(names ...model.ServiceName) { changes++ })
		close(ended)
	}()
	check := func(want string, wantChanges int, problem string) func() {
		return func() {
			p := f.Problem()
			if got := f.List().names(); got != want || changes != wantChanges {
				t.Errorf("%s after %d changes, want %s after %d", got, changes, want, wantChanges)
			}
			if (p == nil) != (problem == "") || p != nil && (!strings.Contains(p.Err.Error(), problem) || p.Since.IsZero() || p.Unknown) {
				t.Errorf("problem %+v, want %q", p, problem)
			}
		}
	}
	for _, step := range []func(){
		func() { write("kind: Drain\nendpoints: [{endpoint: 10.0.0.2}, {endpoint: 10.0.0.3}]") },
		check("10.0.0.2, 10.0.0.3", 1, ""),
		func() { write("kind: Drain\nendpoints: [{endpont: 10.0.0.2}]") },
		check("10.0.0.2, 10.0.0.3", 1, "did you mean endpoint?"),
		func() { write("# the same\nkind: Drain\nendpoints: [{endpoint: 10.0.0.2}, {endpoint: 10.0.0.3}]") },
		check("10.0.0.2, 10.0.0.3", 1, ""),
		func() { _ = os.Remove(path) },
		check("10.0.0.2, 10.0.0.3", 1, "does not exist any more: restore it from "+path+".last, or"),
		func() { _ = os.Remove(path + ".last") },
		check("10.0.0.2, 10.0.0.3", 1, "does not exist any more"),
		func() { write("") },
		check("10.0.0.2, 10.0.0.3", 1, "it is most likely being written"),
		func() { write("kind: Drain\nendpoints: []") },
		check("", 2, ""),
		func() { _ = os.Remove(path) },
		check("", 2, ""),
	} {
		steps <- step
	}
	close(steps)
	<-ended
	for _, want := range []string{"the drain file cannot be used", "the drain file can be used again", "added=[10.0.0.3]", "removed=\"[10.0.0.2 10.0.0.3]\""} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}

// 9.22: without a watch, the file is read at intervals.
func TestFollowWithoutWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drain.yaml")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := Follow(File{Path: path}, unwatched{}, idle{}, slog.New(slog.DiscardHandler))
		changes := make(chan struct{}, 1)
		ended := make(chan struct{})
		go func() {
			f.Run(ctx, func(...model.ServiceName) { changes <- struct{}{} })
			close(ended)
		}()
		if err := os.WriteFile(path, []byte("kind: Drain\nendpoints: [{endpoint: 10.0.0.2}]"), 0o600); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		<-changes
		if got := f.List().names(); got != "10.0.0.2" || time.Since(begun) > pollPause {
			t.Errorf("%s after %s", got, time.Since(begun))
		}
		cancel()
		<-ended
	})
}

// 9.22: a restart at which the file cannot be used puts no endpoint back into service.
func TestFollowAfterRestart(t *testing.T) {
	const drained = "kind: Drain\nendpoints: [{endpoint: 10.0.0.2}]"
	for name, spoil := range map[string]func(path string) error{
		"mistake":   func(path string) error { return os.WriteFile(path, []byte("{{{"), 0o600) },
		"no byte":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"cut off":   func(path string) error { return os.WriteFile(path, []byte("kind: Drain\nendpoints:\n"), 0o600) },
		"gone":      os.Remove,
		"directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		for _, state := range []string{"", t.TempDir()} {
			f := File{Path: filepath.Join(t.TempDir(), "drain.yaml"), State: state}
			if err := os.WriteFile(f.Path, []byte(drained), 0o600); err != nil {
				t.Fatal(err)
			}
			start(f)
			if err := spoil(f.Path); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				now := start(f)
				if p := now.Problem(); now.List().names() != "10.0.0.2" || p == nil || p.Unknown {
					t.Errorf("%s, state in %q: %s is drained, %+v", name, state, now.List().names(), p)
				}
			}
			if other := start(File{Path: filepath.Join(t.TempDir(), "drain.yaml"), State: state}); len(other.List()) > 0 || other.Problem() != nil {
				t.Errorf("%s: another file has the list: %v", name, other.List())
			}
			if name == "directory" {
				continue
			}
			if before, err := f.Clear(); err != nil || len(before) > 1 {
				t.Errorf("%s: %v, %v", name, before, err)
			}
			if now := start(f); len(now.List()) > 0 || now.Problem() != nil {
				t.Errorf("%s: after the end of all drains: %v, %+v", name, now.List(), now.Problem())
			}
		}
	}
}

// start returns a follower, as a start of the daemon does.
func start(f File) *Follower {
	return Follow(f, watched(nil), idle{}, slog.New(slog.DiscardHandler))
}

// 9.22: without an earlier list, a file that cannot be used drains nothing, and that is said.
func TestFollowWithoutEarlierList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drain.yaml")
	if f := start(File{Path: path}); f.Problem() != nil || len(f.List()) > 0 {
		t.Errorf("without a file: %v, %+v", f.List(), f.Problem())
	}
	for _, last := range []string{"", "{{{"} {
		if err := os.WriteFile(path, []byte("{{{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if last != "" {
			if err := os.WriteFile(path+".last", []byte(last), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f := start(File{Path: path})
		if p := f.Problem(); p == nil || !p.Unknown || len(f.List()) > 0 {
			t.Errorf("last list %q: %v, %+v", last, f.List(), p)
		}
		f.read()
		if p := f.Problem(); p == nil || !p.Unknown {
			t.Errorf("last list %q, later: %+v", last, p)
		}
	}
}

// TestConcerned: a change of entries for one Service concerns that alone, so that a machine with
// thousands treats no other again; without a Service, it may be any.
func TestConcerned(t *testing.T) {
	entry := func(text string) Entry {
		target, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		return Entry{Target: target}
	}
	web, db, all := entry("10.1.1.2 shop/web"), entry("10.1.1.2 shop/db"), entry("10.1.1.3")
	for _, c := range []struct {
		a, b List
		want string
	}{
		{List{web}, List{web, db}, "[shop/db]"},
		{List{db, all}, List{web, all}, "[shop/db shop/web]"},
		{List{web}, List{web, db, all}, "[]"},
		{List{all}, nil, "[]"},
	} {
		if got := fmt.Sprint(concerned(c.a, c.b)); got != c.want {
			t.Errorf("%v and %v: %s, want %s", c.a, c.b, got, c.want)
		}
	}
}
