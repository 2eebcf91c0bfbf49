package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
)

// TestSocket: the socket is for root and this user alone, and knows who asks.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "control.sock")
	var log bytes.Buffer
	var peers []Peer
	s := &Socket{Path: path, Log: slog.New(slog.NewTextHandler(&log, nil)), Answer: func(_ context.Context, r *api.Control, p Peer) *api.Controlled {
		if peers = append(peers, p); r.Action == "bad" {
			return &api.Controlled{Error: "a mistake"}
		}
		return &api.Controlled{Changed: true, Balance: r.Balance}
	}}
	l, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Socket{Path: path}).Listen(); err == nil || !strings.Contains(err.Error(), "another process answers") {
		t.Errorf("a second one: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx, l) })
	for _, p := range []struct {
		path string
		want os.FileMode
	}{{path, 0o600}, {filepath.Dir(path), 0o700}} {
		if about, err := os.Stat(p.path); err != nil || about.Mode().Perm() != p.want {
			t.Errorf("%s: %v, %v", p.path, about.Mode(), err)
		}
	}
	c := NewClient(path)
	a, err := c.Do(t.Context(), &api.Control{Action: "set", Balance: "web"})
	if err != nil || !a.Changed || a.Balance != "web" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := c.Do(t.Context(), &api.Control{Action: "bad"}); err == nil || err.Error() != "a mistake" {
		t.Errorf("error: %v", err)
	}
	for _, p := range peers {
		if p.UID != os.Geteuid() || p.PID != os.Getpid() {
			t.Errorf("the peer is %s", p)
		}
	}
	if len(peers) != 2 {
		t.Errorf("%d requests", len(peers))
	}
	c.Close()
	cancel()
	running.Wait()
	if !strings.Contains(log.String(), "a runtime change is refused") {
		t.Errorf("log: %s", log.String())
	}
	if _, err := NewClient(path).Do(t.Context(), &api.Control{}); !errors.Is(err, ErrNoSocket) {
		t.Errorf("after the end: %v", err)
	}
}

// TestStaleSocket: the socket of a process that was killed is replaced; other files are not, and
// neither is a directory in which others can write used.
func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "control.sock")
	s := &Socket{Path: path}
	l, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	l.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = s.Listen(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Listen(); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("a file: %v", err)
	}
	if err := errors.Join(os.Remove(path), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Listen(); err == nil || !strings.Contains(err.Error(), "other users can write") {
		t.Errorf("an open directory: %v", err)
	}
}

// TestTrusted: root and this user.
func TestTrusted(t *testing.T) {
	for p, want := range map[Peer]bool{{0, 1}: true, {os.Geteuid(), 1}: true, {os.Geteuid() + 1000, 1}: false, {unknownID, unknownID}: false} {
		if p.trusted() != want {
			t.Errorf("%s: %v", p, !want)
		}
	}
}

// TestLongPath: a path that no socket can have is refused with the flag, the limit and what to do, by
// both sides. The longest one works.
func TestLongPath(t *testing.T) {
	dir := t.TempDir()
	longest := filepath.Join(dir, strings.Repeat("s", maxPath-len(dir)-1))
	l, err := (&Socket{Path: longest}).Listen()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	_, listened := (&Socket{Path: longest + "s"}).Listen()
	_, asked := NewClient(longest+"s").Do(t.Context(), &api.Control{Action: api.ControlList})
	for _, err := range []error{listened, asked} {
		if err == nil || !strings.Contains(err.Error(), "--control-socket: the path has 108 bytes, and the kernel takes at most 107 (sun_path): choose a shorter one") {
			t.Errorf("error: %v", err)
		}
	}
}
