package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Connection identifies an entry in the default zone by the first packet of its connection. It
// is comparable.
type Connection struct {
	Protocol        model.Protocol // one with ports
	Client, Dialled netip.AddrPort
}

// Outcome is what the entry of a TCP connection says about its endpoint, some seconds after
// the first packet.
type Outcome uint8

const (
	Answered Outcome = iota
	// Refused is a connection without an entry: the kernel removes one whose only answer is a
	// reset (nf_conntrack_tcp_packet, all kernels up to 6.18). Entries of connections that
	// have ended stay for 10 seconds and more.
	Refused
	Unanswered // the client still waits for the first answer, or has given up
)

// Outcomes are all of them.
const Outcomes = 3

func (o Outcome) String() string { return [Outcomes]string{"answered", "refused", "unanswered"}[o] }

// OutcomesOf returns the outcomes of TCP connections, each with one request to the kernel. An
// entry that another program has deleted counts as refused.
func (Netlink) OutcomesOf(connections []Connection) ([]Outcome, error) {
	c, err := dial()
	if err != nil {
		return nil, err
	}
	out, err := outcomesOf(c, connections)
	if err != nil {
		err = fmt.Errorf("look up connection: %w", explain(err))
	}
	return out, errors.Join(err, c.Close())
}

func outcomesOf(c *netlink.Conn, connections []Connection) ([]Outcome, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	out, buffer := make([]Outcome, len(connections)), make([]byte, receiveBuffer)
	for i := range connections {
		of := &connections[i]
		netlinkio.Renew(c)
		asked, err := c.Send(netlink.Message{
			Header: netlink.Header{Type: getEntry, Flags: netlink.Request},
			Data:   append(header(model.FamilyOf(of.Dialled.Addr())), of.encode()...),
		})
		if err != nil {
			return nil, err
		}
		if out[i], err = outcome(raw, buffer, asked.Header.Sequence); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// outcome receives the answer to a request. It does not use [netlink.Conn.Receive]: an entry has
// the flag of a list, and without an end of the list that would wait for further messages.
func outcome(raw syscall.RawConn, buffer []byte, sequence uint32) (Outcome, error) {
	var n int
	var failed error
	err := raw.Read(func(fd uintptr) bool {
		n, _, failed = unix.Recvfrom(int(fd), buffer, 0)
		return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
	})
	if err := errors.Join(err, failed); err != nil {
		return 0, err
	}
	b := buffer[:n]
	if len(b) < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint32(b[8:]) != sequence {
		return 0, errors.New("the kernel has answered something else")
	}
	if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
		if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:]))); errno != unix.ENOENT {
			return 0, errno
		}
		return Refused, nil
	}
	if flow, ok := decode(b[unix.SizeofNlMsghdr:]); ok && flow.Opening {
		return Unanswered, nil
	}
	return Answered, nil
}
