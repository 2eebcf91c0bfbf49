package kernel

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// newInbox returns an inbox for so many datagrams of a size, in bytes.
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
