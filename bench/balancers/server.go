package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	echoPort = 8080 // answers requests
	bulkPort = 8081 // sends without end
	// message is the size of requests and answers.
	message = 64
)

// serveCommand is a server: it answers each request with one of the same size,
// whose first byte is the number of the server.
func serveCommand(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	address := flags.String("on", "", "address")
	id := flags.Int("id", 0, "number of the server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	a, err := netip.ParseAddr(*address)
	if err != nil {
		return err
	}
	bulk, err := net.Listen("tcp", netip.AddrPortFrom(a, bulkPort).String())
	if err != nil {
		return err
	}
	go serveBulk(bulk)
	return serveEcho(netip.AddrPortFrom(a, echoPort), byte(*id))
}

func serveBulk(l net.Listener) {
	content := make([]byte, 256<<10)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for {
				if _, err := c.Write(content); err != nil {
					return
				}
			}
		}()
	}
}

// serveEcho serves all clients from one thread: a goroutine for each would cost
// more than what is measured.
func serveEcho(on netip.AddrPort, id byte) error {
	runtime.LockOSThread()
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	err = errors.Join(unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(listener, &unix.SockaddrInet4{Port: int(on.Port()), Addr: on.Addr().As4()}),
		unix.Listen(listener, 4096),
		unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, listener, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(listener)}))
	if err != nil {
		return fmt.Errorf("listen on %s: %w", on, err)
	}
	fmt.Println("serving")
	events := make([]unix.EpollEvent, 256)
	var buf [message]byte
	for {
		n, err := unix.EpollWait(poll, events, -1)
		if err != nil && err != unix.EINTR {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			if int(e.Fd) == listener {
				accept(poll, listener)
			} else {
				echo(int(e.Fd), id, buf[:])
			}
		}
	}
}

func accept(poll, listener int) {
	for {
		fd, _, err := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0, 0)
		if err != 0 {
			return // accepted all, or the next event tries again
		}
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		if unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}) != nil {
			_ = unix.Close(int(fd))
		}
	}
}

// echo answers a request, and closes the connection at its end.
func echo(fd int, id byte, buf []byte) {
	n, err := unix.Read(fd, buf)
	if err == unix.EAGAIN {
		return
	}
	if n > 0 {
		buf[0] = id
		_, err = unix.Write(fd, buf[:n])
	}
	if n < 1 || err != nil {
		_ = unix.Close(fd)
	}
}
