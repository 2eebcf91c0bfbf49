package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"

	"golang.org/x/sys/unix"
)

// CommitError says what the kernel refused. Nothing of the transaction was
// carried out.
type CommitError struct {
	Object string // the refused part in words
	// Set and Element are those that were refused; nil if it was something
	// else, or if the kernel does not tell.
	Set     *nft.Set
	Element *nft.Element
	Err     error // unwraps to the errno
}

func (e *CommitError) Error() string {
	return fmt.Sprintf("commit: %s: %s", e.Object, KernelMessage(e.Err))
}

func (e *CommitError) Unwrap() error { return e.Err }

// KernelMessage returns the errno in words and, where the kernel gave one, its
// explanation.
func KernelMessage(err error) string {
	var op *netlink.OpError
	if !errors.As(err, &op) {
		return err.Error()
	}
	text := "kernel: " + op.Err.Error()
	if op.Message != "" {
		text += ": " + op.Message
	}
	return text
}

// Commit implements apply.Kernel with one batch.
func (c *Conn) Commit(p *plan.Plan, generation uint32) (Size, error) {
	t, err := Encode(p)
	if err != nil {
		return Size{}, err
	}
	if c.owns {
		t.own()
	}
	return c.send(t, generation)
}

// Check reports how Commit would end, with a batch without an end: the kernel carries its
// messages out and, as it is not told to commit them, undoes them. It tells
// nobody who watches.
func (c *Conn) Check(p *plan.Plan, generation uint32) error {
	t, err := Encode(p)
	if err != nil {
		return err
	}
	if c.owns {
		t.own()
	}
	_, err = c.sendBatch(t, t.Size(), generation, true)
	return err
}

// send carries a transaction out.
func (c *Conn) send(t *Transaction, generation uint32) (Size, error) {
	size := t.Size()
	if c.watcher == nil || size.Bytes < manyBytes {
		return c.sendBatch(t, size, generation, false)
	}
	resume := c.watcher.pause(c)
	size, err := c.sendBatch(t, size, generation, false)
	resume(err == nil)
	return size, err
}

// sendBatch sends a transaction and takes the kernel's answer. A trial changes
// nothing.
func (c *Conn) sendBatch(t *Transaction, size Size, generation uint32, trial bool) (Size, error) {
	if err := c.growBuffers(size); err != nil {
		return size, fmt.Errorf("commit: set socket buffer: %w", err)
	}
	first := c.sequence
	c.sequence += uint32(len(t.Messages)) + 2
	batch := t.batch(generation, first)
	if trial {
		batch = batch[:len(batch)-batchEnd]
	}
	if err := c.write(batch); err != nil {
		return size, fmt.Errorf("commit: send %d messages of %d bytes: %w", size.Messages, size.Bytes, explain(err))
	}
	err := c.receiveResult(first + uint32(len(t.Messages)))
	var op *netlink.OpError
	if isAnswer(err) && errors.As(err, &op) {
		refused := t.blame(int(op.Sequence-first)-1, op.Offset)
		refused.Err = c.refused(err)
		return size, refused
	}
	return size, err
}

// batch returns the messages as the kernel takes them, between those that begin
// and end a batch. They are numbered from first on. Only the last one of ours
// asks for an acknowledgement: it comes when everything was done.
func (t *Transaction) batch(generation, first uint32) []byte {
	header := attributes{unix.AF_UNSPEC, unix.NFNETLINK_V0}
	header = binary.BigEndian.AppendUint16(header, unix.NFNL_SUBSYS_NFTABLES)
	begin := slices.Clone(header)
	begin.uint32(unix.NFNL_BATCH_GENID, generation)

	size := t.Size()
	b := make([]byte, 0, size.Bytes+(size.Messages+2)*(unix.NLMSG_HDRLEN+nlmsgAlign)+len(begin)+len(header))
	b = appendMessage(b, unix.NFNL_MSG_BATCH_BEGIN, netlink.Request, first, begin)
	for i := range t.Messages {
		m := &t.Messages[i]
		flags := netlink.Request | m.Flags
		if i == len(t.Messages)-1 {
			flags |= netlink.Acknowledge
		}
		first++
		b = appendMessage(b, messageType(m.Type), flags, first, m.Data)
	}
	return appendMessage(b, unix.NFNL_MSG_BATCH_END, netlink.Request, first+1, header)
}

const (
	nlmsgAlign = 4                            // NLMSG_ALIGNTO
	batchEnd   = unix.NLMSG_HDRLEN + Nfgenmsg // length of the message that ends a batch
)

// appendMessage appends a netlink message, padded. A batch can have tens of
// megabytes: it is copied once, here.
func appendMessage(b []byte, typ netlink.HeaderType, flags netlink.HeaderFlags, sequence uint32, data []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.NLMSG_HDRLEN+len(data)))
	b = binary.NativeEndian.AppendUint16(b, uint16(typ))
	b = binary.NativeEndian.AppendUint16(b, uint16(flags))
	b = binary.NativeEndian.AppendUint32(b, sequence)
	b = binary.NativeEndian.AppendUint32(b, 0) // our port: the kernel knows it
	b = append(b, data...)
	for len(b)%nlmsgAlign != 0 {
		b = append(b, 0)
	}
	return b
}

// write sends a batch to the kernel, which carries it out before this returns.
func (c *Conn) write(batch []byte) error {
	if err := c.prepare(); err != nil {
		return err
	}
	raw, err := c.nl.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	err = raw.Control(func(fd uintptr) {
		for {
			sendErr = unix.Sendto(int(fd), batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
			if !errors.Is(sendErr, unix.EINTR) {
				return
			}
		}
	})
	return errors.Join(err, os.NewSyscallError("sendto", sendErr))
}

// growBuffers makes room for a batch, which must go out in one piece, and for
// an error to each message of it.
func (c *Conn) growBuffers(s Size) error {
	const perMessage = 1 << 10
	room := s.Bytes + (s.Messages+2)*perMessage
	have, err := c.nl.WriteBuffer()
	if err != nil {
		return err
	}
	if have >= room {
		return nil
	}
	return errors.Join(c.nl.SetWriteBuffer(room), c.nl.SetReadBuffer(room))
}

// ErrNoAnswer means that nobody knows whether the kernel confirmed or refused.
var ErrNoAnswer = errors.New("commit: the kernel's answer is lost")

// receiveResult takes the acknowledgement of a batch, which has the number of its
// last message, or its first error. The kernel works on a batch while it is
// being sent, so all answers are there already.
func (c *Conn) receiveResult(last uint32) error {
	var first error
	for { // the answers come in the order of the messages
		ready, err := c.readable()
		if err != nil {
			return fmt.Errorf("commit: poll socket: %w", err)
		}
		if !ready {
			return cmp.Or(first, ErrNoAnswer)
		}
		netlinkio.Renew(c.nl) // a large batch takes long
		replies, err := c.nl.Receive()
		if err != nil && !isAnswer(err) {
			c.dirty = true
			return cmp.Or(first, fmt.Errorf("%w: %w", ErrNoAnswer, err))
		}
		first = cmp.Or(first, err)
		if slices.ContainsFunc(replies, func(m netlink.Message) bool {
			return m.Header.Type == netlink.Error && m.Header.Sequence == last
		}) {
			return first
		}
	}
}

// blame names the object that an error speaks of, by the index of the message
// and, within a list of elements, by the offset of the attribute from the start
// of the netlink header.
func (t *Transaction) blame(i, offset int) *CommitError {
	if i < 0 || i >= len(t.Messages) {
		return &CommitError{Object: "whole transaction"}
	}
	m := &t.Messages[i]
	if m.Object != "" {
		return &CommitError{Object: m.Object}
	}
	return blameElement(m, offset-unix.NLMSG_HDRLEN)
}

// blameElement names the element whose attribute holds an offset in the
// message. Kernels that do not tell the offset leave the choice of all.
func blameElement(m *Message, offset int) *CommitError {
	verb := plan.Add
	if m.Type == unix.NFT_MSG_DELSETELEM || m.Type == destroySetElement {
		verb = plan.Delete
	}
	i := len(m.parts) - 1
	for i > 0 && m.parts[i].offset > offset {
		i--
	}
	p := m.parts[i]
	name := m.set.Keyword() + " " + m.set.Name
	if offset < m.parts[0].offset && len(m.parts) > 1 {
		return &CommitError{Object: fmt.Sprintf("%s one of %d elements of %s", verb, len(m.parts), name)}
	}
	return &CommitError{
		Object: fmt.Sprintf("%s element { %s } of %s", verb, m.set.ElementText(p.element), name),
		Set:    m.set, Element: p.element,
	}
}
