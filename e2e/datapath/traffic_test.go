package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

const (
	// dataPathClients is how many pods make connections at the same time. Each
	// has an address, and so ports, of its own.
	dataPathClients = 4
	// warmUp passes before anything counts.
	warmUp = 300 * time.Millisecond
	// measured is for how long each figure is measured.
	measured = 2 * time.Second
)

// startPong starts a server on a pod that echoes what it receives, to all
// clients at the same time. It ends with the test. Here and in the clients
// sockets block, with a thread for each: the Go scheduler would cost more than
// the rules.
func startPong(b *testing.B, on *netlab.Host) {
	b.Helper()
	var listener int
	err := on.Do(func() (err error) {
		if listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(listener, &unix.SockaddrInet4{Port: testbed.EchoPort, Addr: on.IPv4.As4()}),
			unix.Listen(listener, unix.SOMAXCONN))
	})
	if err != nil {
		b.Fatalf("listen on %s: %v", on.Name, err)
	}
	var running sync.WaitGroup
	for range dataPathClients {
		running.Go(func() {
			for {
				fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
				if err == unix.ECONNABORTED {
					continue
				}
				if err != nil {
					return // it is shut down
				}
				pong(fd)
			}
		})
	}
	b.Cleanup(func() {
		_ = unix.Shutdown(listener, unix.SHUT_RDWR)
		running.Wait()
		_ = unix.Close(listener)
	})
}

// pong sends back what it gets until the client is gone.
func pong(fd int) {
	defer unix.Close(fd)
	var buf [1]byte
	for {
		n, err := unix.Read(fd, buf[:])
		if n < 1 || err != nil {
			return
		}
		if _, err := unix.Write(fd, buf[:]); err != nil {
			return
		}
	}
}

// connections has clients open a connection, exchange a byte and close it, each
// one after the other. It returns how often all of them did so in a second.
func connections(from []*netlab.Host, to netip.AddrPort) (perSecond float64, err error) {
	counts, errs := make([]int, len(from)), make([]error, len(from))
	begin := time.Now().Add(warmUp)
	end := begin.Add(measured)
	var running sync.WaitGroup
	for i, client := range from {
		running.Go(func() {
			errs[i] = client.Do(func() error {
				for now := time.Now(); now.Before(end); now = time.Now() {
					if err := connectOnce(to); err != nil {
						return err
					}
					if now.After(begin) {
						counts[i]++
					}
				}
				return nil
			})
		})
	}
	running.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / measured.Seconds(), errors.Join(errs...)
}

func connectOnce(to netip.AddrPort) error {
	fd, err := dialBlocking(to)
	if err != nil {
		return err
	}
	return errors.Join(ping(fd), unix.Close(fd))
}

// dialBlocking opens a connection from the namespace of the calling thread. It
// ends with a reset, so that neither side keeps the ports.
func dialBlocking(to netip.AddrPort) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("open socket: %w", err)
	}
	err = errors.Join(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}))
	if err != nil {
		return -1, errors.Join(fmt.Errorf("connect to %s: %w", to, err), unix.Close(fd))
	}
	return fd, nil
}

// ping sends a byte and waits for one.
func ping(fd int) error {
	var buf [1]byte
	if _, err := unix.Write(fd, buf[:]); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if n, err := unix.Read(fd, buf[:]); n < 1 {
		return fmt.Errorf("receive: end of connection, %w", err)
	}
	return nil
}

// roundTrips exchanges bytes over one connection. It returns how long each
// exchange took.
func roundTrips(from *netlab.Host, to netip.AddrPort) ([]time.Duration, error) {
	latencies := make([]time.Duration, 0, 1<<18)
	err := from.Do(func() error {
		fd, err := dialBlocking(to)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		now := time.Now()
		begin := now.Add(warmUp)
		for end := begin.Add(measured); now.Before(end); {
			if err := ping(fd); err != nil {
				return err
			}
			last := now
			now = time.Now()
			if last.After(begin) {
				latencies = append(latencies, now.Sub(last))
			}
		}
		return nil
	})
	return latencies, err
}
