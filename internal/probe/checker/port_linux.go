package checker

import (
	"math/rand/v2"
	"syscall"

	"golang.org/x/sys/unix"
)

// Ports below 1024 that masqueraded connections from ports above do not get: the kernel keeps these
// apart (nf_nat_l4proto_unique_tuple).
const (
	firstLowPort, lowPorts = 600, 424
	lowPortAttempts        = 20
)

// bindLowPort binds a socket to one of these ports, of any address. If none is free, or the process
// may not have one, the socket stays as it is.
func bindLowPort(network, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		for range lowPortAttempts {
			port := firstLowPort + rand.IntN(lowPorts)
			var a unix.Sockaddr = &unix.SockaddrInet4{Port: port}
			if network[len(network)-1] == '6' {
				a = &unix.SockaddrInet6{Port: port}
			}
			if err := unix.Bind(int(fd), a); err != unix.EADDRINUSE {
				return
			}
		}
	})
}
