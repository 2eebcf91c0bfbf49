package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// proxy is a sidecar: it passes connections that were redirected to it on to
// where they went before, from the address that Istio's rules expect of inbound
// ones, and prints each.
func proxy(outbound, inbound string) error {
	errs := make(chan error)
	for _, network := range []string{"tcp4", "tcp6"} {
		go func() { errs <- redirected(network, outbound, "outbound", "") }()
		from := "127.0.0.6"
		if network == "tcp6" {
			from = "::6"
		}
		go func() { errs <- redirected(network, inbound, "inbound", from) }()
	}
	return <-errs
}

func redirected(network, port, direction, from string) error {
	l, err := net.Listen(network, ":"+port)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			to, err := destination(c.(*net.TCPConn), network)
			fmt.Println(direction, to)
			if err == nil {
				err = pass(c, to, from)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "peer:", direction, to, err)
			}
		}()
	}
}

// pass copies in both directions until either side ends.
func pass(c net.Conn, to netip.AddrPort, from string) error {
	defer c.Close()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	s, err := d.Dial("tcp", to.String())
	if err != nil {
		return err
	}
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(s, c)
		_ = s.(*net.TCPConn).CloseWrite()
	})
	_, err = io.Copy(c, s)
	s.Close()
	copying.Wait()
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// destination returns where a connection went before it was redirected.
func destination(c *net.TCPConn, network string) (to netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	var problem error
	err = raw.Control(func(fd uintptr) {
		if network == "tcp6" {
			var info *unix.IPv6MTUInfo
			if info, problem = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); problem == nil {
				port := info.Addr.Port>>8 | info.Addr.Port<<8 // of the network's byte order
				to = netip.AddrPortFrom(netip.AddrFrom16(info.Addr.Addr), port)
			}
			return
		}
		var request *unix.IPv6Mreq // as large as a sockaddr_in
		if request, problem = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); problem == nil {
			a := request.Multiaddr
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), uint16(a[2])<<8|uint16(a[3]))
		}
	})
	return to, errors.Join(err, problem)
}
