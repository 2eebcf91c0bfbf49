package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// listeners are the sockets of all servers, which one thread can wait for.
type listeners struct {
	poll int
	fds  []int
}

func listen(on []*netlab.Host, family model.Family) (l *listeners, err error) {
	l = &listeners{}
	if l.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	for _, h := range on {
		if err := h.Do(func() error { return l.add(netip.AddrPortFrom(h.Address(family), serverPort)) }); err != nil {
			return nil, errors.Join(fmt.Errorf("listen on %s: %w", h.Name, err), l.close())
		}
	}
	return l, nil
}

func (l *listeners) add(at netip.AddrPort) error {
	fd, err := socket(at, unix.SOCK_NONBLOCK)
	if err != nil {
		return err
	}
	l.fds = append(l.fds, fd)
	return errors.Join(unix.Bind(fd, sockaddr(at)), unix.Listen(fd, unix.SOMAXCONN),
		unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}))
}

func (l *listeners) close() error {
	err := unix.Close(l.poll)
	for _, fd := range l.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// acceptTimeout is how long a connection may take from the client to a server.
const acceptTimeout = 2000 // ms

// accept returns the connection that has arrived at one of the servers.
func (l *listeners) accept() (int, error) {
	var events [1]unix.EpollEvent
	for {
		n, err := unix.EpollWait(l.poll, events[:], acceptTimeout)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return -1, err
		case n == 0:
			return -1, errors.New("no server gets the connection")
		}
		fd, _, err := unix.Accept4(int(events[0].Fd), unix.SOCK_CLOEXEC)
		return fd, err
	}
}

func socket(to netip.AddrPort, flags int) (int, error) {
	domain := unix.AF_INET
	if to.Addr().Is6() {
		domain = unix.AF_INET6
	}
	return unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|flags, 0)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// exchange opens a connection, sends a byte there and one back, and closes it by a reset,
// so that neither side keeps the ports.
func (l *listeners) exchange(to netip.AddrPort) error {
	client, err := socket(to, 0)
	if err != nil {
		return err
	}
	defer unix.Close(client)
	err = errors.Join(unix.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptTimeval(client, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: acceptTimeout / 1000}))
	if err == nil {
		err = unix.Connect(client, sockaddr(to))
	}
	if err != nil {
		return fmt.Errorf("connect to %s: %w", to, err)
	}
	server, err := l.accept()
	if err != nil {
		return fmt.Errorf("connection to %s: %w", to, err)
	}
	defer unix.Close(server)
	for _, way := range [][2]int{{client, server}, {server, client}} {
		if err := pass(way[0], way[1]); err != nil {
			return err
		}
	}
	return nil
}

func pass(from, to int) error {
	var b [1]byte
	if _, err := unix.Write(from, b[:]); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if n, err := unix.Read(to, b[:]); n != 1 {
		return fmt.Errorf("receive %d bytes: %w", n, err)
	}
	return nil
}

// cost is the time that a connection takes, and the processor time of the thread.
type cost struct{ wall, processor time.Duration }

// connect makes a number of connections from a host, and returns the mean cost of one.
func (l *listeners) connect(from *netlab.Host, to netip.AddrPort, n int) (c cost, err error) {
	err = from.Do(func() error {
		// The Go runtime interrupts system calls of long-running goroutines by a signal.
		var preempt unix.Sigset_t
		preempt.Val[0] = 1 << (unix.SIGURG - 1)
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &preempt, nil); err != nil {
			return err
		}
		wall, processor := time.Now(), threadTime()
		for range n {
			if err := l.exchange(to); err != nil {
				return err
			}
		}
		c = cost{time.Since(wall) / time.Duration(n), (threadTime() - processor) / time.Duration(n)}
		return nil
	})
	return c, err
}

// threadTime returns the processor time of the calling thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // the kernel has this clock
	}
	return time.Duration(t.Nano())
}
