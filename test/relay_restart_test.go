package test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// supervisor takes the place of systemd: it keeps listeners for the next process.
type supervisor struct {
	t       *testing.T
	socket  *net.UnixConn
	address string
	kept    map[string]*os.File
}

func newSupervisor(t *testing.T) *supervisor {
	t.Helper()
	s := &supervisor{t: t, address: filepath.Join(t.TempDir(), "notify"), kept: make(map[string]*os.File)}
	var err error
	if s.socket, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.address, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.socket.Close()
		for _, f := range s.kept {
			f.Close()
		}
	})
	return s
}

// keeps takes messages until so many files are kept: a listener for each family, and what lets
// connections pass to it.
func (s *supervisor) keeps(n int) {
	s.t.Helper()
	for len(s.kept) != n {
		text, rights := make([]byte, 4096), make([]byte, 4096)
		if err := s.socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
			s.t.Fatal(err)
		}
		a, b, _, _, err := s.socket.ReadMsgUnix(text, rights)
		if err != nil {
			s.t.Fatalf("%v with %d files, want %d", err, len(s.kept), n)
		}
		_, name, _ := strings.Cut(string(text[:a]), "FDNAME=")
		switch {
		case strings.HasPrefix(string(text[:a]), "FDSTOREREMOVE=1\n"):
			if f := s.kept[name]; f != nil {
				f.Close()
				delete(s.kept, name)
			}
		case strings.HasPrefix(string(text[:a]), "FDSTORE=1\n"):
			all, err := unix.ParseSocketControlMessage(rights[:b])
			if err != nil || len(all) != 1 {
				s.t.Fatalf("%d messages, %v", len(all), err)
			}
			fds, err := unix.ParseUnixRights(&all[0])
			if err != nil || len(fds) != 1 {
				s.t.Fatalf("%d files, %v", len(fds), err)
			}
			if old := s.kept[name]; old != nil {
				old.Close()
			}
			s.kept[name] = os.NewFile(uintptr(fds[0]), name)
		}
	}
}

// start starts a process with the listeners that are kept.
func (s *supervisor) start(w *ward) *daemon {
	return w.start(func(cmd *exec.Cmd) {
		var names []string
		for name, f := range s.kept {
			names = append(names, name)
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+s.address, fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
		cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`}, cmd.Args...)
		cmd.Path = "/bin/sh"
	})
}

// TestRelayRestart: 4.84. Where systemd keeps the port of the relay, no client is refused in a
// restart, whether the process ends by itself or not; without relay, none is kept.
func TestRelayRestart(t *testing.T) {
	w := newWard(t, 1)
	w.relay(onPods(w.Pods[0]))
	s := newSupervisor(t)
	d := s.start(w)
	s.keeps(4)
	w.relays(w.Pods[0].Name)
	for _, stop := range []func(){func() { d.stop(t) }, func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() }} {
		stop()
		const clients = 20
		var all sync.WaitGroup
		connected := make(chan error, 2*clients)
		answered := make(chan error, 2*clients)
		for i := range 2 * clients {
			all.Go(func() {
				flow, err := w.Client.Open("tcp", relayed(model.Families[i%2]), patience) // until a process answers
				connected <- err
				if err != nil {
					return
				}
				defer flow.Close()
				_, err = flow.Ask()
				answered <- err
			})
		}
		for range 2 * clients {
			if err := <-connected; err != nil {
				t.Errorf("no process: %v", err)
			}
		}
		d = s.start(w)
		all.Wait()
		close(answered)
		for err := range answered {
			if err != nil {
				t.Errorf("a client that waited: %v", err)
			}
		}
	}
	w.relay(onPods(w.Pods[0]), "relay: false")
	s.keeps(0)
	d.stop(t)
	w.relay(onPods(w.Pods[0]))
	d = s.start(w)
	s.keeps(4)
	d.stop(t)
	if out := w.mustRun(0, exec.Command(binary, "status")); strings.Contains(out, "RelayPort") {
		t.Errorf("a port that is kept is a problem:\n%s", out)
	}
	w.relay(onPods(w.Pods[0]), "relay: false") // nothing takes what is kept
	d = s.start(w)
	s.keeps(0)
	d.stop(t)
}
