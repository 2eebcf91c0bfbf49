package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/serve"
)

const (
	socketPermissions = 0o600
	socketDirectory   = 0o700
	writableByOthers  = 0o022
	maxRequest        = 64 << 10 // bytes
	answerTimeout     = 30 * time.Second
	dialTimeout       = time.Second
	unknownID         = -1 // stands for an unknown user or process
)

// Peer is the process that has made a connection, as the kernel knows it.
type Peer struct{ UID, PID int }

// String returns for example "uid 0, pid 4711".
func (p Peer) String() string { return fmt.Sprintf("uid %d, pid %d", p.UID, p.PID) }

// trusted reports whether a peer may change anything: root, and the user of this process.
func (p Peer) trusted() bool { return p.UID == 0 || p.UID == os.Geteuid() }

// Socket answers requests on a unix socket, which only root and the user of this process can
// use.
type Socket struct {
	Path   string
	Answer func(context.Context, *api.Control, Peer) *api.Controlled
	Log    *slog.Logger
}

// Listen opens the socket. Its directory is made if there is none, and others must not be able
// to write there.
func (s *Socket) Listen() (net.Listener, error) {
	if err := checkPath(s.Path); err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	l, err := net.Listen("unix", s.Path)
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	if err := os.Chmod(s.Path, socketPermissions); err != nil {
		return nil, errors.Join(fmt.Errorf("open control socket: %w", err), l.Close())
	}
	return l, nil
}

// maxPath is how many bytes the path of a unix socket may have: sun_path of the kernel has one more,
// for the end (unix(7)).
const maxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// checkPath returns an error if a path is too long for a socket.
func checkPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("--control-socket: the path has %d bytes, and the kernel takes at most %d (sun_path): choose a shorter one, such as /run/nftproxy/control.sock: %s",
			len(path), maxPath, path)
	}
	return nil
}

// prepare makes the directory, and removes the socket of a process that has ended.
func (s *Socket) prepare() error {
	folder := filepath.Dir(s.Path)
	if err := os.MkdirAll(folder, socketDirectory); err != nil {
		return err
	}
	about, err := os.Stat(folder)
	if err != nil {
		return err
	}
	owner := unknownID
	if st, ok := about.Sys().(*syscall.Stat_t); ok {
		owner = int(st.Uid)
	}
	if about.Mode().Perm()&writableByOthers != 0 || !(Peer{UID: owner}).trusted() {
		return fmt.Errorf("other users can write to %s: choose a directory of root with the mode 0700", folder)
	}
	there, err := os.Lstat(s.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case there.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is not a socket: choose another path", s.Path)
	}
	if c, err := net.DialTimeout("unix", s.Path, dialTimeout); err == nil {
		return errors.Join(fmt.Errorf("another process answers at %s: choose another path", s.Path), c.Close())
	}
	return os.Remove(s.Path)
}

type peerKey struct{}

// Run answers until ctx ends. It closes the listener, which [Socket.Listen] has opened.
func (s *Socket) Run(ctx context.Context, l net.Listener) error {
	server := serve.NewHTTP(http.HandlerFunc(s.handle), answerTimeout, s.Log)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, peerKey{}, peerOf(c))
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	err := server.Serve(l)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// peerOf returns the process at the other end of a connection, as it was when that was made.
func peerOf(c net.Conn) Peer {
	unknown := Peer{unknownID, unknownID}
	u, ok := c.(syscall.Conn)
	if !ok {
		return unknown
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return unknown
	}
	peer := unknown
	_ = raw.Control(func(fd uintptr) { // an error leaves the peer unknown
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			peer = Peer{int(cred.Uid), int(cred.Pid)}
		}
	})
	return peer
}

// handle answers one request.
func (s *Socket) handle(w http.ResponseWriter, r *http.Request) {
	peer, _ := r.Context().Value(peerKey{}).(Peer)
	if !peer.trusted() {
		s.Log.Warn("a process may not use the control socket", "uid", peer.UID, "pid", peer.PID)
		write(w, http.StatusForbidden, &api.Controlled{Error: fmt.Sprintf("user %d may change nothing: run this as root", peer.UID)})
		return
	}
	if r.URL.Path != api.ControlPath || r.Method != http.MethodPost {
		write(w, http.StatusNotFound, &api.Controlled{Error: "send POST to " + api.ControlPath})
		return
	}
	request := new(api.Control)
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(request); err != nil {
		write(w, http.StatusBadRequest, &api.Controlled{Error: "read request: " + err.Error()})
		return
	}
	answer := s.Answer(r.Context(), request, peer)
	status := http.StatusOK
	if answer.Error != "" {
		status = http.StatusUnprocessableEntity
		s.Log.Warn("a runtime change is refused", "command", request.Action, "object", request.Balance, "server", request.Server, "uid", peer.UID, "pid", peer.PID, "error", answer.Error)
	}
	write(w, status, answer)
}

func write(w http.ResponseWriter, status int, answer *api.Controlled) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // an error: the client is gone
}
