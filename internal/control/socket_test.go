package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/control"
	"github.com/nftproxy/nftproxy/internal/control/client"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestSocket: the socket is for root and this user alone, and knows who asks.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "control.sock")
	var log bytes.Buffer
	var peers []control.Peer
	s := &control.Socket{Path: path, Log: slog.New(slog.NewTextHandler(&log, nil)), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peers = append(peers, control.PeerOf(r))
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"bad"`) {
			fmt.Fprint(w, `{"error":"a mistake"}`)
			return
		}
		fmt.Fprint(w, `{"changed":true,"balance":"web"}`)
	})}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	awaitSocket(t, path)
	if _, err := (&control.Socket{Path: path}).Listen(); err == nil || !strings.Contains(err.Error(), "another process answers") {
		t.Errorf("a second one: %v", err)
	}
	for _, p := range []struct {
		path string
		want os.FileMode
	}{{path, 0o600}, {filepath.Dir(path), 0o700}} {
		if about, err := os.Stat(p.path); err != nil || about.Mode().Perm() != p.want {
			t.Errorf("%s: %v, %v", p.path, about.Mode(), err)
		}
	}
	c := client.NewClient(path)
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
	if log.Len() > 0 {
		t.Errorf("log: %s", log.String())
	}
	if _, err := client.NewClient(path).Do(t.Context(), &api.Control{}); !errors.Is(err, client.ErrNoSocket) {
		t.Errorf("after the end: %v", err)
	}
}

// awaitSocket waits until a socket answers.
func awaitSocket(t *testing.T, path string) {
	t.Helper()
	netlab.Eventually(t, 20*time.Second, func() error {
		c, err := net.Dial("unix", path)
		if err != nil {
			return fmt.Errorf("the socket does not listen: %w", err)
		}
		return c.Close()
	})
}

// nobody is a user without rights.
const nobody = 65534

// anotherUser in the environment makes the test binary a process of another user at a socket, whose path
// it has: a client, or with "listen:" before the path a listener.
const anotherUser = "NFTPROXY_TEST_SOCKET"

func TestMain(m *testing.M) {
	given := os.Getenv(anotherUser)
	if given == "" {
		os.Exit(netlab.Run(m.Run))
	}
	if path, listens := strings.CutPrefix(given, "listen:"); listens {
		l, err := net.Listen("unix", path)
		if err != nil {
			panic(err)
		}
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"changed":true}`) }))
		return
	}
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", given)
	}}}
	for _, path := range []string{api.ControlPath, "/status"} {
		r, err := c.Post("http://nftproxy"+path, "application/json", strings.NewReader(`{"action":"set","balance":"web"}`))
		if err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("%d %s", r.StatusCode, body)
	}
}

// asNobody returns a command that is this test binary as another user.
func asNobody(t *testing.T, given string) *exec.Cmd {
	t.Helper()
	netlab.SkipInUserNamespace(t, "a process of another user")
	program := filepath.Join(t.TempDir(), "test")
	text, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = errors.Join(os.WriteFile(program, text, 0o755), os.Chmod(filepath.Dir(program), 0o755), os.Chmod(filepath.Dir(filepath.Dir(program)), 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program)
	c.Env = append(os.Environ(), anotherUser+"="+given)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return c
}

// TestOtherUserAsks: a process of another user gets no answer and changes nothing, also if it reaches the
// socket.
func TestOtherUserAsks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "control.sock")
	s := &control.Socket{Path: path, Log: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it reads a page or changes something") })}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	awaitSocket(t, path)
	c := asNobody(t, path)
	for _, p := range []string{path, filepath.Dir(path), filepath.Dir(filepath.Dir(path)), filepath.Dir(filepath.Dir(filepath.Dir(path)))} {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := c.CombinedOutput(); err != nil || strings.Count(string(out), "403 ") != 2 || !strings.Contains(string(out), "user 65534 may change nothing") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestOtherUserListens: the answer of another user at the socket is not read, and neither is one in a
// directory of another user.
func TestOtherUserListens(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "control.sock")
	c := asNobody(t, "listen:"+path)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	awaitSocket(t, path)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if a, err := client.NewClient(path).Do(t.Context(), &api.Control{}); err == nil || !strings.Contains(err.Error(), "of user 65534 listens there, and is not asked") {
		t.Errorf("%+v, %v", a, err)
	}
	own := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.Listen("unix", own)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chown(filepath.Dir(own), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if a, err := client.NewClient(own).Do(t.Context(), &api.Control{}); err == nil || !strings.Contains(err.Error(), "other users can write to") {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestDirectoryOfOtherUser: a directory of another user is refused whatever its mode, and the default one
// of this user is closed.
func TestDirectoryOfOtherUser(t *testing.T) {
	dir := t.TempDir()
	netlab.SkipInUserNamespace(t, "a directory of another user")
	s := &control.Socket{Path: filepath.Join(dir, "control.sock"), Optional: true}
	if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Listen(); err == nil || !strings.Contains(err.Error(), "other users can write to") {
		t.Errorf("of another user: %v", err)
	}
	if err := errors.Join(os.Chown(dir, 0, 0), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	l, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if about, err := os.Stat(dir); err != nil || about.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", about.Mode(), err)
	}
}

// TestStaleSocket: the socket of a process that was killed is replaced; other files are not, and
// neither is a directory in which others can write used.
func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "control.sock")
	s := &control.Socket{Path: path}
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
	for p, want := range map[control.Peer]bool{{0, 1}: true, {os.Geteuid(), 1}: true, {os.Geteuid() + 1000, 1}: false, {control.UnknownID, control.UnknownID}: false} {
		if p.Trusted() != want {
			t.Errorf("%s: %v", p, !want)
		}
	}
}

// TestLongPath: a path that no socket can have is refused with the flag, the limit and what to do, by
// both sides. The longest one works.
func TestLongPath(t *testing.T) {
	dir := t.TempDir()
	longest := filepath.Join(dir, strings.Repeat("s", control.MaxPath-len(dir)-1))
	l, err := (&control.Socket{Path: longest}).Listen()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	_, listened := (&control.Socket{Path: longest + "s"}).Listen()
	_, asked := client.NewClient(longest+"s").Do(t.Context(), &api.Control{Action: api.ControlList})
	for _, err := range []error{listened, asked} {
		if err == nil || !strings.Contains(err.Error(), "--control-socket: the path has 108 bytes, and the kernel takes at most 107 (sun_path): choose a shorter one") {
			t.Errorf("error: %v", err)
		}
	}
}

// TestRemoveEnded: a start removes the sockets of processes that were killed, also in other network namespaces. One that
// a process listens at stays, and so do young ones, whose process may not listen yet, and other files.
func TestRemoveEnded(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-2 * control.StartTime)
	leave := func(name string, at time.Time) {
		t.Helper()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if err := errors.Join(os.Chtimes(filepath.Join(dir, name), at, at), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	leave("net-1.sock", old)
	leave("net-2.sock", time.Now())
	leave(control.Name, old)
	leave("other.sock", old)
	living, err := net.Listen("unix", filepath.Join(dir, "net-3.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close()
	if err := errors.Join(os.Chtimes(filepath.Join(dir, "net-3.sock"), old, old), os.WriteFile(filepath.Join(dir, "net-4.sock"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s := control.Socket{Path: filepath.Join(dir, "net-5.sock"), Optional: true, Log: slog.New(slog.DiscardHandler)}
	l, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var left []string
	entries, _ := os.ReadDir(dir) // it exists
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"net-2.sock", "net-3.sock", "net-4.sock", "net-5.sock", "other.sock"}; !slices.Equal(left, want) {
		t.Errorf("left: %v, want %v", left, want)
	}
	if removed := control.RemoveEnded(dir, filepath.Join(dir, "net-2.sock")); len(removed) != 1 {
		t.Errorf("a young socket of our own: %v", removed)
	}
}
