package netlab

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// HasSCTP reports whether the kernel has sockets of SCTP.
func HasSCTP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

// EchoSCTP starts an echo server like [Host.Echo], over SCTP alone.
func (h *Host) EchoSCTP(port uint16) (*Echo, error) {
	e := &Echo{name: h.Name, port: port}
	for _, f := range model.Families {
		l, err := h.sctp(netip.AddrPortFrom(h.Address(f), port), unix.SOCK_NONBLOCK)
		if err == nil {
			if err = unix.Listen(l, unix.SOMAXCONN); err != nil {
				err = errors.Join(err, unix.Close(l))
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start echo server over SCTP on %s: %w", h.Name, err), e.Close())
		}
		file := os.NewFile(uintptr(l), "SCTP")
		e.closers = append(e.closers, file)
		go e.serveSCTP(file)
	}
	return e, nil
}

// sctp returns a socket that is bound to one address: with the others of the host in its messages, both ends
// would try paths around the rules.
func (h *Host) sctp(own netip.AddrPort, flags int) (fd int, err error) {
	family := unix.AF_INET
	if own.Addr().Is6() {
		family = unix.AF_INET6
	}
	err = h.Do(func() error {
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, unix.IPPROTO_SCTP)
		return err
	})
	if err == nil {
		if err = unix.Bind(fd, socketAddress(own)); err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return fd, err
}

func (e *Echo) serveSCTP(l *os.File) {
	raw, err := l.SyscallConn()
	if err != nil {
		return
	}
	for {
		fd, from := -1, unix.Sockaddr(nil)
		closed := raw.Read(func(listener uintptr) bool {
			fd, from, err = unix.Accept4(int(listener), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			return !errors.Is(err, unix.EAGAIN)
		})
		if closed != nil {
			return
		}
		if err == nil { // an error of one client must not concern the next one
			go e.serveAssociation(os.NewFile(uintptr(fd), "SCTP"), from)
		}
	}
}

func (e *Echo) serveAssociation(c *os.File, from unix.Sockaddr) {
	defer c.Close()
	client := &net.TCPAddr{}
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		client.IP, client.Port = a.Addr[:], a.Port
	case *unix.SockaddrInet6:
		client.IP, client.Port = a.Addr[:], a.Port
	}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if _, err := c.WriteString(e.answer(client)); err != nil {
			return
		}
	}
}

// AskSCTP opens an association, asks once and closes it. wait is how long each step may take; 0 stands for a
// generous time. An error of ICMP is ECONNREFUSED or another of its own.
func (h *Host) AskSCTP(to netip.AddrPort, wait time.Duration) (Answer, error) {
	f, err := h.OpenSCTP(to, wait)
	if err != nil {
		return Answer{}, err
	}
	defer f.Close()
	return f.Ask()
}

// OpenSCTP is [Host.Open] over SCTP, from a port that the kernel chooses.
func (h *Host) OpenSCTP(to netip.AddrPort, wait time.Duration) (*Flow, error) {
	if wait == 0 {
		wait = timeout
	}
	fd, err := h.sctp(netip.AddrPortFrom(h.Address(model.FamilyOf(to.Addr())), 0), unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if to.Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	if err = unix.SetsockoptInt(fd, level, option, 1); err == nil { // else errors of ICMP are ignored
		if err = unix.Connect(fd, socketAddress(to)); errors.Is(err, unix.EINPROGRESS) {
			err = established(fd, wait)
		}
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	c := os.NewFile(uintptr(fd), "SCTP")
	return &Flow{c, bufio.NewReader(c), wait}, nil
}

// established waits for an association. The first packet is repeated after 3 s, and the kernel ignores an error of
// ICMP that arrives while it sends one for the process.
func established(fd int, wait time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(wait/time.Millisecond))
	if err == nil && n == 0 {
		err = unix.ETIMEDOUT
	}
	if err != nil {
		return err
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

func socketAddress(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
