package dial

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// cancelled is how long it takes at most to notice that the test is cancelled.
const cancelled = 100 * time.Millisecond

// Prober opens connections, each from a socket of its own.
type Prober struct {
	Room     *Room         // where the client is; nil: in the network namespace of the process
	Patience time.Duration // how long to wait for an answer
}

// open opens a connection, and closes it. Over TCP and SCTP nothing is sent. Over UDP it is one empty
// datagram, and an answer is awaited. The error is one of the test itself.
func (p *Prober) open(ctx context.Context, d *conntest.Dial) (a conntest.Attempt, err error) {
	protocol, err := model.ParseProtocol(d.Protocol)
	if err != nil {
		return a, err
	}
	wait := p.Patience
	if protocol == model.UDP || d.Refused {
		wait = min(wait, conntest.ShortPatience)
	}
	s, err := p.socket(protocol, d.To)
	switch {
	case protocol == model.SCTP && errors.Is(err, unix.EPROTONOSUPPORT):
		return conntest.Attempt{Outcome: conntest.Unsupported}, nil
	case err != nil:
		return a, err
	}
	defer s.close()
	failure := s.try(ctx, wait)
	if ctx.Err() != nil {
		return a, ctx.Err()
	}
	if a.Client = s.local.Addr(); a.Client.IsValid() && d.Learns == conntest.Tracked {
		entries, err := conntrack.Netlink{}.EntriesOf([]conntrack.Connection{{Protocol: protocol, Client: s.local, Dialled: d.To}})
		if err != nil {
			return a, err
		}
		if entry := entries[0]; entry != nil {
			a.Endpoint, a.Source = entry.Answers, entry.Returns.Addr()
		}
	}
	setOutcome(&a, failure, protocol)
	return a, nil
}

func setOutcome(a *conntest.Attempt, failure error, p model.Protocol) {
	switch timeout := errors.Is(failure, unix.ETIMEDOUT); {
	case failure == nil:
		a.Outcome = conntest.Answered
	case errors.Is(failure, unix.ECONNREFUSED), errors.Is(failure, unix.ECONNRESET):
		a.Outcome = conntest.Refused
	case timeout && p == model.UDP && a.Endpoint.IsValid():
		a.Outcome = conntest.Sent
	case timeout, errors.Is(failure, unix.EPERM), a.Endpoint.IsValid():
		a.Outcome = conntest.Silent
	default:
		a.Outcome, a.Error = conntest.Failed, failure.Error()
	}
}

// Refuses returns why an endpoint takes no connections of this machine, in words; empty: it does,
// or that is not known. Only TCP can tell.
func (p *Prober) Refuses(ctx context.Context, in words.Vocabulary, endpoint netip.AddrPort) string {
	s, err := p.socket(model.TCP, endpoint)
	if err != nil {
		return ""
	}
	defer s.close()
	switch err := s.try(ctx, p.Patience); {
	case errors.Is(err, unix.ECONNREFUSED):
		return in.Sprintf("endpoint %s refuses connections: does nothing listen there?", endpoint)
	case err != nil && ctx.Err() == nil:
		return in.Sprintf("endpoint %s cannot be reached from this machine: %v", endpoint, err)
	}
	return ""
}

// socket is a socket that does not block.
type socket struct {
	fd       int
	protocol model.Protocol
	to       netip.AddrPort
	local    netip.AddrPort // after try
}

func (p *Prober) socket(protocol model.Protocol, to netip.AddrPort) (*socket, error) {
	family, kind := unix.AF_INET, unix.SOCK_STREAM
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	if protocol == model.UDP {
		kind = unix.SOCK_DGRAM
	}
	s := &socket{protocol: protocol, to: to}
	open := func() (err error) {
		if protocol == model.SCTP {
			s.fd, err = associate(to.Addr(), family)
			return err
		}
		s.fd, err = unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	}
	do := func(f func() error) error { return f() }
	if p.Room != nil {
		do = p.Room.Do
	}
	if err := do(open); err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	return s, nil
}

const (
	solSCTP     = unix.IPPROTO_SCTP
	sctpRTOInfo = 0 // of <linux/sctp.h>
)

// timing is a struct sctp_rtoinfo: the first timeout, the most and the least in milliseconds. The kernel ignores an
// error of ICMP that arrives while it sends the first packet, as it does on one machine: the second packet comes
// soon, and not after 3 s.
var timing = func() (b []byte) {
	for _, n := range []uint32{0, 200, 1000, 200} {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	return b
}()

// associate returns a socket of SCTP. It is bound to the one address that the route to the server prefers:
// else an association has all addresses of the client, and getsockname names none. Errors of ICMP, by which
// rules reject, are ignored without the option.
func associate(to netip.Addr, family int) (fd int, err error) {
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return fd, err
	}
	if family == unix.AF_INET {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
	} else {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	}
	if err == nil {
		err = unix.SetsockoptString(fd, solSCTP, sctpRTOInfo, string(timing))
	}
	if own := conntest.RoutedSource(to); err == nil && own.IsValid() { // else connecting has the error
		err = unix.Bind(fd, address(netip.AddrPortFrom(own, 0)))
	}
	if err != nil {
		err = errors.Join(err, unix.Close(fd))
	}
	return fd, err
}

func (s *socket) close() { _ = unix.Close(s.fd) } // it was only read and connected

// try connects, and over UDP awaits an answer to an empty datagram.
func (s *socket) try(ctx context.Context, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	err := unix.Connect(s.fd, address(s.to))
	if own, failed := unix.Getsockname(s.fd); failed == nil {
		s.local = addrPort(own)
	}
	switch {
	case s.protocol == model.UDP && err == nil:
		refused := unix.Send(s.fd, nil, 0)
		err := s.await(ctx, unix.POLLIN, deadline)
		// What rules reject or drop on the machine that made it is "not permitted". A rejection follows.
		if refused != nil && errors.Is(err, unix.ETIMEDOUT) {
			return refused
		}
		return err
	case errors.Is(err, unix.EINPROGRESS):
		return s.await(ctx, unix.POLLOUT, deadline)
	}
	return err
}

func (s *socket) await(ctx context.Context, events int16, deadline time.Time) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return unix.ETIMEDOUT
		}
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: events}}
		n, err := unix.Poll(fds, int(min(left, cancelled)/time.Millisecond)+1)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case n > 0:
			return s.err()
		}
	}
}

func (s *socket) err() error {
	n, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && n != 0 {
		err = unix.Errno(n)
	}
	return err
}

func address(to netip.AddrPort) unix.Sockaddr {
	if to.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	return &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
}

func addrPort(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}
