// Package flow measures what a new flow costs: a TCP connection, or the first datagrams of
// a client's port. One thread is client and server: it never waits, and its processor time
// is what the packets take on their whole way.
package flow

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// Servers are the sockets of servers of one protocol, which one thread can wait for.
type Servers struct {
	// Ended has the servers end connections over TCP, and then the clients; else the clients
	// reset them. It is set before Open.
	Ended bool

	protocol model.Protocol // TCP or UDP
	poll     int
	fds      []int
	port     uint16 // of the last client, with UDP
}

// Listen opens a socket for each host, at its address of a family.
func Listen(p model.Protocol, on []*netlab.Host, family model.Family, port uint16) (s *Servers, err error) {
	s = &Servers{protocol: p, port: firstPort}
	if s.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	for _, h := range on {
		if err := h.Do(func() error { return s.add(netip.AddrPortFrom(h.Address(family), port)) }); err != nil {
			return nil, errors.Join(fmt.Errorf("listen on %s: %w", h.Name, err), s.Close())
		}
	}
	return s, nil
}

func (l *Servers) add(at netip.AddrPort) error {
	fd, err := l.socket(at, unix.SOCK_NONBLOCK)
	if err != nil {
		return err
	}
	l.fds = append(l.fds, fd)
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return err
	}
	if l.protocol == model.TCP {
		if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
			return err
		}
	}
	return unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// Close closes the sockets.
func (l *Servers) Close() error {
	err := unix.Close(l.poll)
	for _, fd := range l.fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// acceptTimeout is how long a connection may take from the client to a server.
const acceptTimeout = 2000 // ms

// await returns the socket of the server that a packet has arrived at.
func (l *Servers) await() (int, error) {
	var events [1]unix.EpollEvent
	for {
		n, err := unix.EpollWait(l.poll, events[:], acceptTimeout)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return -1, err
		case n == 0:
			return -1, errors.New("it reaches no server")
		}
		return int(events[0].Fd), nil
	}
}

func (l *Servers) socket(to netip.AddrPort, flags int) (int, error) {
	domain, kind := unix.AF_INET, unix.SOCK_STREAM
	if to.Addr().Is6() {
		domain = unix.AF_INET6
	}
	if l.protocol == model.UDP {
		kind = unix.SOCK_DGRAM
	}
	return unix.Socket(domain, kind|unix.SOCK_CLOEXEC|flags, 0)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// connect opens a connection, sends a byte there and one back, and closes it so that the
// client can use its port again: by a reset, or the server first.
func (l *Servers) connect(to netip.AddrPort) error {
	client, err := l.socket(to, 0)
	if err != nil {
		return err
	}
	defer unix.Close(client)
	err = errors.Join(l.linger(client), unix.SetsockoptTimeval(client, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: acceptTimeout / 1000}))
	if err == nil {
		err = unix.Connect(client, sockaddr(to))
	}
	if err != nil {
		return fmt.Errorf("connect to %s: %w", to, err)
	}
	listener, err := l.await()
	if err != nil {
		return fmt.Errorf("connection to %s: %w", to, err)
	}
	server, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return err
	}
	err = errors.Join(pass(client, server), pass(server, client))
	if !l.Ended {
		defer unix.Close(server)
		return err
	}
	return errors.Join(err, unix.Close(server))
}

// linger has the end of a client's socket reset its connection, unless it is to be ended.
func (l *Servers) linger(client int) error {
	if l.Ended {
		return nil
	}
	return unix.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// firstPort is the first one of clients over UDP. Each port is used once: connection tracking
// would take a datagram from one that it knows for a part of the same flow.
const firstPort = 1024

// datagram sends a datagram from a port of its own, and one back.
func (l *Servers) datagram(to netip.AddrPort) error {
	client, err := l.socket(to, 0)
	if err != nil {
		return err
	}
	defer unix.Close(client)
	err = errors.Join(unix.SetsockoptTimeval(client, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: acceptTimeout / 1000}),
		l.bind(client, to.Addr()), unix.Connect(client, sockaddr(to)))
	if err != nil {
		return fmt.Errorf("open a socket to %s: %w", to, err)
	}
	var b [1]byte
	if _, err := unix.Write(client, b[:]); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	server, err := l.await()
	if err != nil {
		return fmt.Errorf("datagram to %s: %w", to, err)
	}
	_, from, err := unix.Recvfrom(server, b[:], 0)
	if err == nil {
		err = unix.Sendto(server, b[:], 0, from)
	}
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if n, err := unix.Read(client, b[:]); n != 1 {
		return fmt.Errorf("receive %d bytes: %w", n, err)
	}
	return nil
}

// bind gives a client the next port that no socket of its host has.
func (l *Servers) bind(client int, to netip.Addr) error {
	for {
		if l.port++; l.port == 0 {
			return errors.New("all ports of the client are used")
		}
		err := unix.Bind(client, sockaddr(netip.AddrPortFrom(unspecified(to), l.port)))
		if err != unix.EADDRINUSE {
			return err
		}
	}
}

func unspecified(a netip.Addr) netip.Addr {
	if a.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
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

// Cost is the time that a flow takes, and the processor time of the thread.
type Cost struct{ Wall, Processor time.Duration }

// Open opens a number of flows from a host, and returns the mean cost of one.
func (l *Servers) Open(from *netlab.Host, to netip.AddrPort, n int) (c Cost, err error) {
	exchange := l.connect
	if l.protocol == model.UDP {
		exchange = l.datagram
	}
	err = from.Do(func() error {
		// The Go runtime interrupts system calls of long-running goroutines by a signal.
		var preempt unix.Sigset_t
		preempt.Val[0] = 1 << (unix.SIGURG - 1)
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &preempt, nil); err != nil {
			return err
		}
		wall, processor := time.Now(), threadTime()
		for range n {
			if err := exchange(to); err != nil {
				return err
			}
		}
		c = Cost{time.Since(wall) / time.Duration(n), (threadTime() - processor) / time.Duration(n)}
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

// AllPorts lets clients on a host use more ports than the kernel gives by default: one address
// has too few, if connection tracking keeps closed connections.
func AllPorts(h *netlab.Host) error {
	return h.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("1024 65535"), 0) })
}
