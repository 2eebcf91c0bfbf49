package conntrack

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"syscall"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
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

// Outcome is what happened to a TCP connection, as its entry says some seconds after the first packet.
type Outcome uint8

const (
	Answered Outcome = iota
	// Refused is a connection without an entry: the kernel removes one whose only answer is a
	// reset (nf_conntrack_tcp_packet, all kernels up to 6.18). Entries of connections that
	// have ended stay for 10 seconds and more.
	Refused
	Unanswered // the client still waits for the first answer, or has given up
	// Dropped is a connection without an entry whose first packet was lost on this machine. An entry does not
	// say that: who has seen the packet on its way knows it.
	Dropped
)

// Outcomes are all of them.
const Outcomes = 4

func (o Outcome) String() string {
	return [Outcomes]string{"answered", "refused", "unanswered", "dropped"}[o]
}

// Entry is what connection tracking knows about a connection.
type Entry struct {
	Flow
	// Counted reports that the kernel counts bytes (net.netfilter.nf_conntrack_acct). The client has
	// sent the first number, with headers of IP, and received the second one.
	Counted        bool
	Sent, Received uint64
}

// Outcome returns the outcome of a TCP connection; nil: it has no entry. An entry that another program has deleted counts
// as refused.
func (e *Entry) Outcome() Outcome {
	switch {
	case e == nil:
		return Refused
	case e.Opening:
		return Unanswered
	}
	return Answered
}

// EntriesOf returns the entries of connections; nil: there is none.
func (Netlink) EntriesOf(connections []Connection) (out []*Entry, err error) {
	err = withSocket("look up connection", func(c *netlink.Conn) (err error) {
		out, err = entriesOf(c, connections)
		return err
	})
	return out, err
}

// together is how many connections are looked up at once: the answers have room in the buffer
// of a socket.
const together = 32

func entriesOf(c *netlink.Conn, connections []Connection) ([]*Entry, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	out, buffer := make([]*Entry, 0, len(connections)), make([]byte, receiveBuffer)
	for some := range slices.Chunk(connections, together) {
		netlinkio.Renew(c)
		questions := make([]netlink.Message, len(some))
		for i, of := range some {
			questions[i] = newRequest(getEntry, 0, of.Dialled, encodeTuple(nl.CTA_TUPLE_ORIG, of.Protocol, of.Client, of.Dialled))
		}
		asked, err := c.SendMessages(questions)
		if err != nil {
			return nil, err
		}
		for _, q := range asked { // the kernel answers in order
			netlinkio.Renew(c)
			e, err := receiveEntry(raw, buffer, q.Header.Sequence)
			if err != nil {
				return nil, err
			}
			out = append(out, e)
		}
	}
	return out, nil
}

// receiveEntry receives the answer to a request. It does not use [netlink.Conn.Receive]: an entry has
// the flag of a list, and without an end of the list that would wait for further messages.
func receiveEntry(raw syscall.RawConn, buffer []byte, sequence uint32) (*Entry, error) {
	var n int
	var failed error
	err := raw.Read(func(fd uintptr) bool {
		n, _, failed = unix.Recvfrom(int(fd), buffer, 0)
		return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, err
	}
	b := buffer[:n]
	if len(b) < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint32(b[8:]) != sequence {
		return nil, errors.New("the kernel has answered something else")
	}
	message := b[unix.SizeofNlMsghdr:]
	if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
		if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(message))); errno != unix.ENOENT {
			return nil, errno
		}
		return nil, nil
	}
	return decodeEntry(message), nil
}

// decodeEntry decodes a message about an entry. The zone has been asked for.
func decodeEntry(message []byte) *Entry {
	e := &Entry{}
	var err error
	e.Flow, _ = decode(message)
	for a := netlinkio.ReadMessage(message, &err); a.Next(); {
		switch a.Type {
		case nl.CTA_COUNTERS_ORIG:
			e.Sent, e.Counted = bytesOf(a.Nested()), true
		case nl.CTA_COUNTERS_REPLY:
			e.Received = bytesOf(a.Nested())
		}
	}
	return e
}

func bytesOf(a netlinkio.Attributes) uint64 {
	for a.Next() {
		if a.Type == nl.CTA_COUNTERS_BYTES && len(a.Data) == 8 {
			return binary.BigEndian.Uint64(a.Data)
		}
	}
	return 0
}
