// Package control is the unix socket by which root asks a running nftproxy, and changes servers of Balances.
package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/serve"
)

const (
	socketPermissions = 0o600
	socketDirectory   = 0o700
	writableByOthers  = 0o022
	pageTimeout       = 10 * time.Minute // of a profile
	dialTimeout       = time.Second
)

// Socket serves requests on a unix socket, which only root and the user of this process
// can use.
type Socket struct {
	Path string
	// Optional reports that no setting asks for the socket: where its directory cannot be made, there is
	// none, and a directory of this user is closed for others.
	Optional bool
	Handler  http.Handler // of requests of root and of this user; [PeerOf] returns their process
	Log      *slog.Logger

	opened net.Listener // before Run
}

// Open opens the socket, so that clients can connect before Run. If it fails, Run tries again.
func (s *Socket) Open() {
	if l, err := s.Listen(); err == nil {
		s.opened = l
	}
}

// opener is a [serve.Opener] of a socket, which may be open already.
type opener struct{ *Socket }

func (s opener) Open() (net.Listener, error) {
	if l := s.opened; l != nil {
		s.opened = nil
		return l, nil
	}
	return s.Listen()
}

// Listen opens the socket. Its directory is made if there is none, and others must not be able
// to write there.
func (s *Socket) Listen() (net.Listener, error) {
	if err := CheckPath(s.Path); err != nil {
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

func CheckPath(path string) error {
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
	if s.Optional && err == nil && about.Mode().Perm()&writableByOthers != 0 && ownerOf(about) == os.Geteuid() {
		_ = os.Chmod(folder, socketDirectory) // an empty directory of a pod has the mode 0777; checkDirectory has the error
	}
	if err := checkDirectory(folder); err != nil {
		return err
	}
	if s.Optional {
		RemoveEnded(folder)
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

// startTime is longer than a process takes from making its socket to listening there.
const startTime = time.Minute

// RemoveEnded removes the sockets of processes that have ended from a directory. A process that is killed
// leaves its own, and later ones in other network namespaces have other names. Sockets that are younger than
// a minute stay, except own ones: their processes may not listen yet. It returns descriptions of what it removed.
func RemoveEnded(folder string, own ...string) (removed []string) {
	paths, _ := filepath.Glob(filepath.Join(folder, "net-*.sock")) // the pattern is right
	for _, path := range append(paths, filepath.Join(folder, Name)) {
		about, err := os.Lstat(path)
		if err != nil || about.Mode().Type() != fs.ModeSocket || !slices.Contains(own, path) && time.Since(about.ModTime()) < startTime {
			continue
		}
		c, err := net.DialTimeout("unix", path, dialTimeout)
		switch {
		case err == nil:
			_ = c.Close()
		case errors.Is(err, syscall.ECONNREFUSED) && os.Remove(path) == nil:
			removed = append(removed, "socket "+path)
		}
	}
	return removed
}

// checkDirectory returns an error if users other than root and this one can put a socket into a
// directory.
func checkDirectory(folder string) error {
	about, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if about.Mode().Perm()&writableByOthers != 0 || !(Peer{UID: ownerOf(about)}).Trusted() {
		return fmt.Errorf("other users can write to %s: choose a directory of root with the mode 0700", folder)
	}
	return nil
}

func ownerOf(about fs.FileInfo) int {
	if st, ok := about.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return unknownID
}

// Run serves until ctx ends. Where it cannot listen, it tries again, unless the socket is optional and may
// not be made.
func (s *Socket) Run(ctx context.Context) error {
	if s.opened == nil && s.Optional {
		l, err := s.Listen()
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			s.Log.Warn("commands of root cannot ask this process, because it has no directory for its socket: mount one that it can write, or name a path with --control-socket", "error", err)
			return nil
		}
		s.opened = l
	}
	server := serve.Server{Name: "control socket", Address: s.Path, Opener: opener{s}, Site: s, WriteTimeout: pageTimeout, Log: s.Log}
	return server.Run(ctx)
}

// ServeHTTP answers one request of a trusted peer.
func (s *Socket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer := PeerOf(r)
	if !peer.Trusted() {
		s.Log.Warn("a process may not use the control socket", "uid", peer.UID, "pid", peer.PID)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "{\"error\":\"user %d may change nothing: run this as root\"}\n", peer.UID)
		return
	}
	r.Host = "localhost" // no browser reaches a socket by the name of another site
	s.Handler.ServeHTTP(w, r)
}

// unknownID stands for an unknown user or process.
const unknownID = -1

// Peer is the process at the other end of a connection, as the kernel knows it (SO_PEERCRED): the one that
// has connected, or that has begun to listen.
type Peer struct{ UID, PID int }

// String returns for example "uid 0, pid 4711".
func (p Peer) String() string { return fmt.Sprintf("uid %d, pid %d", p.UID, p.PID) }

// Trusted reports whether a peer may change anything: root, and the user of this process.
func (p Peer) Trusted() bool { return p.UID == 0 || p.UID == os.Geteuid() }

// CheckUser returns an error unless the peer is root or the user of this process.
func (p Peer) CheckUser() error {
	if !p.Trusted() {
		return fmt.Errorf("process %d of user %d listens there, and is not asked", p.PID, p.UID)
	}
	return nil
}

// PeerOf returns the process that sends a request to a [Socket].
func PeerOf(r *http.Request) Peer { return peerOf(serve.Connection(r)) }

// peerOf returns the process at the other end of a connection, as it was when that was made.
func peerOf(c net.Conn) Peer {
	if u, ok := c.(syscall.Conn); ok {
		cred, err := descriptors.Use(u, func(fd int) (*syscall.Ucred, error) {
			return syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		})
		if err == nil {
			return Peer{int(cred.Uid), int(cred.Pid)}
		}
	}
	return Peer{unknownID, unknownID}
}

// Dial connects to a socket whose process check accepts. The path may be longer than that of a socket.
func Dial(ctx context.Context, path string, check func(Peer) error) (net.Conn, error) {
	if len(path) > maxPath {
		folder, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path))
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := check(peerOf(c)); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// CheckDirectory returns an error if other users than root and this one could have made a socket.
func CheckDirectory(path string) error { return checkDirectory(filepath.Dir(path)) }

// Name is the name of the socket in a runtime directory. DefaultDirectory has the sockets of processes
// without such a directory and without --control-socket; each has the network namespace in its name.
const (
	Name             = "control.sock"
	DefaultDirectory = "/run/nftproxy"
)

// DefaultPath returns where a process in the network namespace of the calling thread has its socket by
// default, or nothing.
func DefaultPath() string {
	var about syscall.Stat_t
	if err := syscall.Stat("/proc/thread-self/ns/net", &about); err != nil {
		return ""
	}
	return fmt.Sprintf("%s/net-%d.sock", DefaultDirectory, about.Ino)
}
