package control

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/descriptors"
	"github.com/nftproxy/nftproxy/internal/serve"
)

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
