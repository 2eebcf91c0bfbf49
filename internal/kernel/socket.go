package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// socket is the netlink socket of a [Conn], which Go's poller does not watch. The kernel
// answers while a message is being sent, so usually nothing has to be waited for. The poller
// would wake a thread for each answer, which finds nothing to do: that takes longer than the
// kernel needs for a small transaction. A lost answer is waited for in the system call, for
// [netlinkio.Patience].
type socket struct {
	closing sync.RWMutex // held for reading during system calls: a watcher is closed while it asks
	fd      int          // negative after Close
	kernel  unix.SockaddrNetlink
	buffer  []byte // of one datagram
	// What was received ahead: so many bytes of the buffer, or the error.
	ahead   int
	failure error
}

// dialSocket opens a socket to nf_tables in the namespace of the calling thread, or, unless
// zero, in the namespace of a file. It returns the socket, and the connection over it.
func dialSocket(namespace int) (*socket, *netlink.Conn, error) {
	watched, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: namespace})
	if err != nil {
		return nil, nil, fmt.Errorf("open netlink socket: %w", err)
	}
	defer watched.Close() // it is the same socket, but only the poller's
	// The kernel then explains errors in words. It also sends the refused message
	// back; with the option against that (CapAcknowledge) the netlink library
	// would lose the explanation.
	if err := watched.SetOption(netlink.ExtendedAcknowledge, true); err != nil {
		return nil, nil, fmt.Errorf("set netlink option: %w", err)
	}
	raw, err := watched.SyscallConn()
	if err != nil {
		return nil, nil, fmt.Errorf("use netlink socket: %w", err)
	}
	s := &socket{kernel: unix.SockaddrNetlink{Family: unix.AF_NETLINK}, buffer: make([]byte, receiveBuffer)}
	controlErr := raw.Control(func(fd uintptr) { s.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(controlErr, os.NewSyscallError("fcntl", err)); err != nil {
		return nil, nil, fmt.Errorf("keep netlink socket: %w", err)
	}
	patience := unix.NsecToTimeval(int64(netlinkio.Patience))
	if err := errors.Join(unix.SetNonblock(s.fd, false), unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("set up netlink socket: %w", err), s.Close())
	}
	return s, netlink.NewConn(s, watched.PID()), nil
}

// Close closes the socket. It is safe for concurrent use with all else, which it waits for.
func (s *socket) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.fd < 0 {
		return os.ErrClosed
	}
	fd := s.fd
	s.fd = -1
	return os.NewSyscallError("close", unix.Close(fd))
}

func (s *socket) write(b []byte) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Sendto(s.fd, b, 0, &s.kernel)
	}
	return os.NewSyscallError("sendto", err)
}

func (s *socket) Send(m netlink.Message) error {
	b, err := m.MarshalBinary()
	if err != nil {
		return err
	}
	return s.write(b)
}

// SendMessages sends messages in one datagram.
func (s *socket) SendMessages(all []netlink.Message) error {
	var out []byte
	for _, m := range all {
		b, err := m.MarshalBinary()
		if err != nil {
			return err
		}
		out = append(out, b...)
	}
	return s.write(out)
}

// hasDatagram receives the next datagram if it is on the socket already, or an error, and keeps it
// for [socket.receiveDatagram]. It reports whether there is one of both.
func (s *socket) hasDatagram() bool {
	if s.ahead > 0 || s.failure != nil {
		return true
	}
	s.closing.RLock()
	defer s.closing.RUnlock()
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&s.buffer[0])), uintptr(len(s.buffer)),
		unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
	switch {
	case errno == unix.EAGAIN:
		return false
	case errno != 0:
		s.failure = os.NewSyscallError("recvfrom", errno)
	default:
		s.ahead = int(n)
	}
	return true
}

// peekDatagram returns what [socket.hasDatagram] has received, and keeps it; nothing if there is no datagram.
func (s *socket) peekDatagram() []byte {
	if !s.hasDatagram() || s.failure != nil || s.ahead > len(s.buffer) {
		return nil
	}
	return s.buffer[:s.ahead]
}

// receiveDatagram returns the next datagram, which is valid until the next call.
func (s *socket) receiveDatagram() ([]byte, error) {
	n, err := s.ahead, s.failure
	s.ahead, s.failure = 0, nil
	if n == 0 && err == nil {
		n, err = s.awaitDatagram()
	}
	switch {
	case err != nil:
		return nil, err
	case n > len(s.buffer):
		return nil, errTruncated
	}
	return s.buffer[:n], nil
}

// awaitDatagram waits for a datagram, and returns its length.
func (s *socket) awaitDatagram() (n int, err error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	err = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(s.fd, s.buffer, unix.MSG_TRUNC)
	}
	if errors.Is(err, unix.EAGAIN) {
		return 0, os.ErrDeadlineExceeded
	}
	return n, os.NewSyscallError("recvfrom", err)
}

var (
	errTruncated = errors.New("receive: the datagram is too long")
	errMalformed = errors.New("receive: the length of a message is wrong")
)

// ReceiveIter returns the messages of the next datagram, which may be kept.
func (s *socket) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		b, err := s.receiveDatagram()
		if err != nil {
			yield(netlink.Message{}, err)
			return
		}
		rest := make([]byte, alignedLength(len(b)))
		copy(rest, b)
		for len(rest) >= unix.NLMSG_HDRLEN {
			var m netlink.Message
			length := alignedLength(int(binary.NativeEndian.Uint32(rest)))
			if length > len(rest) {
				err = errMalformed
			} else {
				err = m.UnmarshalBinary(rest[:length])
			}
			if !yield(m, err) || err != nil {
				return
			}
			rest = rest[length:]
		}
	}
}

func alignedLength(n int) int { return (n + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

func (s *socket) Receive() (all []netlink.Message, err error) {
	for m, err := range s.ReceiveIter() {
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// receiveMany receives what is on the socket, most datagrams at most; EAGAIN if there is nothing.
func (s *socket) receiveMany(to *inbox, most int) (n int, err error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	return to.receiveDatagrams(s.fd, most)
}

// namespaceCookie returns the number of the network namespace. Kernels before 5.14 have none.
func (s *socket) namespaceCookie() (uint64, error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	n, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return n, os.NewSyscallError("getsockopt", err)
}

func (s *socket) sendBufferSize() (int, error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	n, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	return n, os.NewSyscallError("getsockopt", err)
}

// growBuffers makes the buffers larger, beyond the limit of the system if the process may do that.
func (s *socket) growBuffers(bytes int) error {
	return errors.Join(
		s.resizeBuffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, bytes),
		s.resizeBuffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, bytes))
}

func (s *socket) resizeBuffer(force, usual, bytes int) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, force, bytes)
	if err != nil {
		err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, usual, bytes)
	}
	return os.NewSyscallError("setsockopt", err)
}

// inbox receives several datagrams with one system call: the answers to a question are many
// and small.
type inbox struct {
	messages []message
	memory   []byte
	size     int // of a datagram
}

// message is struct mmsghdr (recvmmsg(2)).
type message struct {
	header unix.Msghdr
	length uint32
}

func newInbox(n, size int) *inbox {
	b := &inbox{messages: make([]message, n), memory: make([]byte, n*size), size: size}
	vectors := make([]unix.Iovec, n)
	for i := range vectors {
		vectors[i].Base = &b.memory[i*size]
		vectors[i].SetLen(size)
		b.messages[i].header.Iov = &vectors[i]
		b.messages[i].header.SetIovlen(1)
	}
	return b
}

// receiveDatagrams receives what is on the socket, most datagrams at most; EAGAIN if there is nothing.
func (b *inbox) receiveDatagrams(fd, most int) (n int, err error) {
	received, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[0])),
		uintptr(min(most, len(b.messages))), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(received), nil
}

func (b *inbox) datagramAt(i int) []byte {
	return b.memory[i*b.size:][:b.messages[i].length]
}
