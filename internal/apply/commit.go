package apply

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// CommitError says what the kernel refused. Nothing of the transaction was
// carried out.
type CommitError struct {
	Object string // the refused part in words
	Err    error  // unwraps to the errno
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

// Commit implements [Kernel] with one batch.
func (c *Conn) Commit(p *Plan, generation uint32) (Size, error) {
	t, err := Encode(p)
	if err != nil {
		return Size{}, err
	}
	if c.owns {
		t.own()
	}
	return c.send(t, generation)
}

// send carries a transaction out.
func (c *Conn) send(t *Transaction, generation uint32) (Size, error) {
	size := t.Size()
	if c.watcher == nil || size.Bytes < manyBytes {
		return c.sendBatch(t, size, generation)
	}
	resume := c.watcher.pause(c)
	size, err := c.sendBatch(t, size, generation)
	resume(err == nil)
	return size, err
}

func (c *Conn) sendBatch(t *Transaction, size Size, generation uint32) (Size, error) {
	if err := c.growBuffers(size); err != nil {
		return size, fmt.Errorf("commit: set socket buffer: %w", err)
	}
	sent, err := c.nl.SendMessages(batchOf(t, generation))
	if err != nil {
		return size, fmt.Errorf("commit: send %d messages of %d bytes: %w", size.Messages, size.Bytes, err)
	}
	err = c.receiveResult(sent)
	var op *netlink.OpError
	if errors.As(err, &op) {
		return size, &CommitError{Object: blame(t, sent, op), Err: c.refused(err)}
	}
	return size, err
}

// batchOf wraps the messages into a batch. Only the last one asks for an
// acknowledgement: it comes when everything was done.
func batchOf(t *Transaction, generation uint32) []netlink.Message {
	header := attributes{unix.AF_UNSPEC, unix.NFNETLINK_V0}
	header = binary.BigEndian.AppendUint16(header, unix.NFNL_SUBSYS_NFTABLES)
	first := slices.Clone(header)
	first.uint32(unix.NFNL_BATCH_GENID, generation)

	batch := make([]netlink.Message, 0, len(t.Messages)+2)
	batch = append(batch, netlink.Message{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_BEGIN, Flags: netlink.Request}, Data: first})
	for _, m := range t.Messages {
		header := netlink.Header{Type: messageType(m.Type), Flags: netlink.Request | m.Flags}
		batch = append(batch, netlink.Message{Header: header, Data: m.Data})
	}
	batch[len(batch)-1].Header.Flags |= netlink.Acknowledge
	return append(batch, netlink.Message{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_END, Flags: netlink.Request}, Data: header})
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

// errNoAnswer means that the kernel neither confirmed nor refused.
var errNoAnswer = errors.New("commit: the kernel did not answer")

// receiveResult waits for the acknowledgement of a batch, or for its first
// error. The kernel works on a batch while it is being sent, so all answers
// are there already.
func (c *Conn) receiveResult(sent []netlink.Message) error {
	last := sent[len(sent)-2].Header.Sequence
	var first error
	done := false
	for {
		ready, err := c.readable()
		if err != nil {
			return fmt.Errorf("commit: poll socket: %w", err)
		}
		if !ready {
			break
		}
		replies, err := c.nl.Receive()
		if err != nil && first == nil {
			first = err
		}
		done = done || slices.ContainsFunc(replies, func(m netlink.Message) bool {
			return m.Header.Type == netlink.Error && m.Header.Sequence == last
		})
	}
	if first == nil && !done {
		return errNoAnswer
	}
	return first
}

// readable tells whether an answer waits on the socket.
func (c *Conn) readable() (bool, error) {
	raw, err := c.nl.SyscallConn()
	if err != nil {
		return false, err
	}
	var n int
	var pollErr error
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			if n, pollErr = unix.Poll(fds, 0); !errors.Is(pollErr, unix.EINTR) {
				return
			}
		}
	})
	return n > 0, errors.Join(err, pollErr)
}

// blame finds the object that an error speaks of, by the sequence number of
// the message and, within a list of elements, by the offset of the attribute.
func blame(t *Transaction, sent []netlink.Message, op *netlink.OpError) string {
	i := slices.IndexFunc(sent, func(m netlink.Message) bool { return m.Header.Sequence == op.Sequence }) - 1
	if i < 0 || i >= len(t.Messages) {
		return "whole transaction"
	}
	m := &t.Messages[i]
	if m.Object != "" {
		return m.Object
	}
	return blameElement(m, op.Offset-unix.NLMSG_HDRLEN)
}

// blameElement names the element whose attribute holds an offset in the
// message. Kernels that do not tell the offset leave the choice of all.
func blameElement(m *Message, offset int) string {
	verb := Add
	if m.Type == unix.NFT_MSG_DELSETELEM {
		verb = Delete
	}
	i := len(m.parts) - 1
	for i > 0 && m.parts[i].offset > offset {
		i--
	}
	p := m.parts[i]
	name := p.set.Keyword() + " " + p.set.Name
	if offset < m.parts[0].offset && len(m.parts) > 1 {
		return fmt.Sprintf("%s one of %d elements of %s", verb, len(m.parts), name)
	}
	return fmt.Sprintf("%s element { %s } of %s", verb, p.set.ElementText(p.element), name)
}
