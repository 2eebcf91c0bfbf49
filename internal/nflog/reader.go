package nflog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

const (
	// snap is how many bytes of a packet are copied: the headers of IPv6 and TCP without
	// options, and some more for extension headers.
	snap = 96
	// batch is how many packets the kernel collects before it sends them, or what fits into
	// batchBytes; with the connection, one takes about 400 bytes. A batch and what the kernel
	// needs to send it fit into 32 KiB, the largest piece of memory that it can count on.
	batch      = 128
	batchBytes = 31 << 10
	// datagram is the longest one: the kernel makes a longer one than batchBytes for a single
	// packet, of a few hundred bytes.
	datagram = 2 * batchBytes
	// flushTime is how long the kernel collects packets.
	flushTime = 100 * time.Millisecond
	// room is the buffer of the socket in bytes: for some 16,000 packets with their connections.
	room = 4 << 20
)

// Messages and attributes of <linux/netfilter/nfnetlink_log.h>.
const (
	packetMessage = unix.NFNL_SUBSYS_ULOG << 8 // NFULNL_MSG_PACKET is 0
	configMessage = unix.NFNL_SUBSYS_ULOG<<8 | 1

	cfgCommand   = 1
	cfgMode      = 2
	cfgBuffer    = 3
	cfgTimeout   = 4
	cfgThreshold = 5
	cfgFlags     = 6

	commandBind = 1
	copyPacket  = 2

	flagSequence  = 1
	flagConntrack = 4
)

// Reader reads the packets of a group. [Reader.Read] is not safe for concurrent use, all other
// methods are.
type Reader struct {
	nl     *netlink.Conn
	raw    syscall.RawConn
	buffer []byte
	event  Event
	next   uint32 // sequence number of the next packet
	begun  bool   // next is known

	// Connections reports that the kernel adds the connection of each packet, which takes
	// CONFIG_NETFILTER_NETLINK_GLUE_CT.
	Connections bool

	lost     atomic.Uint64
	received int // bytes of the last datagram
	failed   error
}

// Open begins to read a group in the network namespace of the calling thread. It needs
// CAP_NET_ADMIN. The error is a [TakenError] if another socket reads the group.
//
// Each attempt has a socket of its own, so that a late answer to one, for which the kernel has
// loaded modules, is not taken for the answer to the next.
func Open(group uint16) (r *Reader, err error) {
	err = netlinkio.Retry(netlinkio.Fades, func() error {
		r, err = open(group)
		return err
	})
	return r, err
}

// Tracks reports whether the kernel can add the connection to logged packets. It needs
// CAP_NET_ADMIN. It binds no group.
func Tracks() (bool, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return false, fmt.Errorf("open netlink socket: %w", err)
	}
	defer nl.Close()
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Uint16(cfgFlags, flagConntrack)
	err = netlinkio.Retry(netlinkio.Fades, func() error { return sendSettings(nl, unbound, e) })
	switch {
	case errors.Is(err, unix.EOPNOTSUPP): // the kernel checks this before it looks for the group
		return false, nil
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.EPERM), err == nil:
		return true, nil
	}
	return false, fmt.Errorf("ask for the abilities of nflog: %w", err)
}

// unbound is a group that a socket need not have bound.
const unbound = 65535

func open(group uint16) (*Reader, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: datagram})
	if err != nil {
		return nil, fmt.Errorf("read nflog group %d: open netlink socket: %w", group, err)
	}
	r := &Reader{nl: nl, buffer: make([]byte, datagram)}
	if err := r.beginReading(group); err != nil {
		return nil, errors.Join(fmt.Errorf("read nflog group %d: %w", group, err), nl.Close())
	}
	return r, nil
}

func (r *Reader) beginReading(group uint16) (err error) {
	if r.raw, err = r.nl.SyscallConn(); err != nil {
		return fmt.Errorf("use netlink socket: %w", err)
	}
	if err := r.nl.SetReadBuffer(room); err != nil {
		return fmt.Errorf("set socket buffer: %w", err)
	}
	r.Connections = true
	err = r.bindGroup(group, flagSequence|flagConntrack)
	if errors.Is(err, unix.EOPNOTSUPP) { // the kernel checks this before it binds
		r.Connections = false
		err = r.bindGroup(group, flagSequence)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EBUSY) {
		if taken := holderOf(group); taken != nil {
			return taken
		}
	}
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("bind: %w: this kernel lacks nflog: load the module nfnetlink_log", err)
	}
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return r.nl.SetDeadline(time.Time{})
}

// bindGroup binds the group with all of its settings in one message, before the first packet. It
// does not bind a family: that would make nflog the logger of other messages of the kernel.
func (r *Reader) bindGroup(group, flags uint16) error {
	be := binary.BigEndian
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = be
	e.Uint8(cfgCommand, commandBind)
	e.Bytes(cfgMode, append(be.AppendUint32(nil, snap), copyPacket, 0)) // struct nfulnl_msg_config_mode
	e.Uint32(cfgBuffer, batchBytes)
	e.Uint32(cfgTimeout, uint32(flushTime/(10*time.Millisecond)))
	e.Uint32(cfgThreshold, batch)
	e.Uint16(cfgFlags, flags)
	return sendSettings(r.nl, group, e)
}

// sendSettings sends settings of a group.
func sendSettings(nl *netlink.Conn, group uint16, settings *netlink.AttributeEncoder) error {
	attributes, err := settings.Encode()
	if err != nil {
		return fmt.Errorf("encode settings: %w", err)
	}
	header := binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, group)
	netlinkio.Renew(nl)
	_, err = nl.Execute(netlink.Message{
		Header: netlink.Header{Type: configMessage, Flags: netlink.Request | netlink.Acknowledge},
		Data:   append(header, attributes...),
	})
	return err
}

// Close ends reading. A Read that waits returns an error.
func (r *Reader) Close() error { return r.nl.Close() }

// Lost returns how many packets were logged, but not received, as far as later packets show.
func (r *Reader) Lost() uint64 { return r.lost.Load() }

// Read waits for packets and calls f for each of them. f must neither keep the event nor wait
// for long: meanwhile the kernel drops what does not fit into the buffer of the socket. The
// error is permanent.
func (r *Reader) Read(f func(*Event)) error {
	if err := r.raw.Read(r.receiveDatagram); err != nil {
		return fmt.Errorf("receive logged packets: %w", err)
	}
	switch {
	case errors.Is(r.failed, unix.ENOBUFS): // the sequence numbers tell how many are lost
		return nil
	case r.failed != nil:
		return fmt.Errorf("receive logged packets: %w", r.failed)
	}
	r.deliverPackets(r.buffer[:r.received], f)
	return nil
}

// receiveDatagram receives a datagram, or returns false: none is there yet.
func (r *Reader) receiveDatagram(fd uintptr) bool {
	for {
		n, err := unix.Read(int(fd), r.buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false
		}
		r.received, r.failed = max(n, 0), err
		return true
	}
}

// deliverPackets calls f with the packets in a datagram.
func (r *Reader) deliverPackets(b []byte, f func(*Event)) {
	for len(b) >= unix.SizeofNlMsghdr {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return // the kernel sends none
		}
		kind, message := binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:length]
		b = b[min(len(b), (length+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
		if kind != packetMessage || len(message) < netlinkio.HeaderLength {
			continue // the end of a batch, or the answer to a bind
		}
		sequence, ok := r.event.decode(message[0], message[netlinkio.HeaderLength:])
		if r.begun {
			r.lost.Add(uint64(sequence - r.next)) // numbers wrap
		}
		r.next, r.begun = sequence+1, true
		if ok {
			f(&r.event)
		}
	}
}
