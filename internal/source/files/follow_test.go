package files

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// followedObjects are two Services and a Node.
const followedObjects = `
{apiVersion: v1, kind: Service, metadata: {namespace: a, name: web}, spec: {clusterIP: 10.96.0.1, ports: [{port: %d}]}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: a, name: dns}, spec: {clusterIP: 10.96.0.2, ports: [{port: 53}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}}
`

// TestFollowState: the state of files follows each attempt to load them: the time
// stays while they are unusable for another reason, and new warnings are logged
// once.
func TestFollowState(t *testing.T) {
	t.Chdir(t.TempDir())
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		f := &followed{files: &Reader{Paths: []string{"a.yaml"}}, log: slog.New(slog.NewTextHandler(&log, nil))}
		load := func(text string) source.State {
			t.Helper()
			check(t, os.WriteFile("a.yaml", []byte(text), 0o600))
			time.Sleep(time.Minute)
			_, err := f.Load()
			if s := f.State(); (s.Err == nil) != (err == nil) {
				t.Errorf("state %v after error %v", s.Err, err)
			}
			return f.State()
		}
		const warned = `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}}`
		start := time.Now()
		s := load(warned)
		if !s.Since.Equal(start.Add(time.Minute)) || s.LastSuccess != s.Since || s.Failures != 0 || len(s.Warnings) != 1 || s.Warned != 1 {
			t.Errorf("at the start: %+v", s)
		}
		good := s.Since
		if s = load(warned); !s.Since.Equal(good) {
			t.Errorf("usable since %v, want %v", s.Since, good)
		}
		last := s.LastSuccess
		s = load("kind: [")
		broken := s.Since
		if s.LastSuccess != last || s.Failures != 1 || !broken.After(last) || len(s.Warnings) != 1 {
			t.Errorf("broken: %+v", s)
		}
		if s = load(""); !s.Since.Equal(broken) || s.Failures != 2 || !strings.Contains(s.Err.Error(), "empty") {
			t.Errorf("broken in another way: %+v", s)
		}
		if s = load(warned); !s.Since.After(broken) || s.Err != nil || s.LastSuccess != s.Since {
			t.Errorf("repaired: %+v", s)
		}
	})
	for _, warning := range []string{"spec.clusterIP", "skipped 1 object"} {
		if n := strings.Count(log.String(), warning); n != 1 {
			t.Errorf("%s was logged %d times:\n%s", warning, n, log.String())
		}
	}
}

// TestFollow: a source of files needs no wait and loads everything first;
// a change of a file is reported, and loads what it changed. A broken file is an
// error and loses nothing.
func TestFollow(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(text string) {
		t.Helper()
		check(t, os.WriteFile("new", []byte(text), 0o600))
		check(t, os.Rename("new", "a.yaml"))
	}
	write(fmt.Sprintf(followedObjects, 80))
	files := &Reader{Paths: []string{"a.yaml"}}
	watcher, err := NewWatcher(files.Paths...)
	check(t, err)
	s := Follow(files, watcher, "n1", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	changes, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func() { changes <- struct{}{} }) }()
	check(t, s.AwaitNode(ctx))
	check(t, s.Await(ctx))
	loads := func(want ...string) {
		t.Helper()
		u, err := s.Load()
		check(t, err)
		names := slices.SortedFunc(maps.Keys(u.Services), func(a, b model.ServiceName) int { return strings.Compare(a.String(), b.String()) })
		if got := fmt.Sprint(names); got != fmt.Sprint(want) {
			t.Errorf("loaded %s, want %s", got, want)
		}
	}
	loads("a/dns", "a/web")
	if n := s.Node(); n == nil || n.Name != "n1" || s.String() != "files a.yaml" {
		t.Errorf("%s with node %v", s, n)
	}
	for _, c := range []struct {
		text string
		want []string // nil: an error
	}{
		{"kind: [", nil},
		{fmt.Sprintf(followedObjects, 81), []string{"a/web"}},
	} {
		write(c.text)
		select {
		case <-changes:
		case <-ctx.Done():
			t.Fatal("the change was not reported")
		}
		if c.want != nil {
			loads(c.want...)
		} else if _, err := s.Load(); err == nil {
			t.Error("a broken file was loaded")
		}
	}
	cancel()
	check(t, <-ended)
}

// TestFollowLookup: files return the Services that they have.
func TestFollowLookup(t *testing.T) {
	t.Chdir(t.TempDir())
	check(t, os.WriteFile("a.yaml", fmt.Appendf(nil, followedObjects, 80), 0o600))
	sourcetest.CheckLookup(t, Follow(&Reader{Paths: []string{"a.yaml"}}, nil, "n1", slog.New(slog.DiscardHandler)))
}
