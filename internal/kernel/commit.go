package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// AnyGeneration commits a transaction regardless of the generation.
const AnyGeneration = 0

// CommitError describes a part of a plan that the kernel refused. Nothing of the
// transaction was carried out.
type CommitError struct {
	Object string // the refused part in words
	// Set has the refused Element. Both are nil if something else was refused; Element
	// is nil if any of several elements of Set may be it.
	Set     *nft.Set
	Element *nft.Element
	Err     error // unwraps to the errno
}

func (e *CommitError) Error() string {
	return fmt.Sprintf("commit: %s: %s", e.Object, KernelMessage(e.Err))
}

func (e *CommitError) Unwrap() error { return e.Err }

// KernelMessage returns the errno in words and the kernel's explanation, if any.
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

type Prepared struct {
	*plan.Plan
	transaction *codec.Transaction // the plan as the kernel gets it; nil: the commit makes it
}

// Prepare encodes a plan before its commit, for example while another one is committed, in
// the memory of one that is no longer in use. The commit returns its error.
func Prepare(p *plan.Plan, spare Prepared) Prepared {
	t, err := codec.EncodeAgain(p, spare.transaction)
	if err != nil {
		t = nil
	}
	return Prepared{p, t}
}

// Commit implements apply.Kernel with one batch.
func (c *Conn) Commit(p Prepared, generation uint32) (_ codec.Size, err error) {
	t := p.transaction
	if t == nil {
		if t, err = codec.Encode(p.Plan); err != nil {
			return codec.Size{}, err
		}
	}
	if c.owns {
		ownTables(t)
	}
	return c.send(t, generation)
}

// send carries out a transaction. The watch is off during a large one.
func (c *Conn) send(t *codec.Transaction, generation uint32) (codec.Size, error) {
	size := t.Size()
	if c.watcher == nil || size.Bytes < manyBytes {
		return size, c.sendAndReceive(t, size, generation)
	}
	resume := c.watcher.pauseWatch(c)
	err := c.sendAndReceive(t, size, generation)
	resume(err == nil)
	return size, err
}

func (c *Conn) sendAndReceive(t *codec.Transaction, size codec.Size, generation uint32) error {
	first, err := c.sendBatch(t, size, generation, false)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return c.receiveAnswer(t, first)
}

// receiveAnswer returns the kernel's answer to a transaction with this first message.
func (c *Conn) receiveAnswer(t *codec.Transaction, first uint32) error {
	answers, err := c.receiveResult(first + uint32(len(t.Messages)))
	var op *netlink.OpError
	if len(answers) == 0 || !errors.As(answers[0], &op) {
		return err
	}
	refused := refusedObject(t, int(op.Sequence-first)-1, op.Offset)
	refused.Err = c.explainRefusal(answers[0])
	if c.Log != nil {
		c.Log.Debug("the kernel refused a transaction", "error", refused, "message", op.Sequence-first, "transaction", t)
	}
	return refused
}

// sendBatch sends a transaction and returns the number of its first message.
// A trial lacks the message that ends a batch, so the kernel undoes it.
func (c *Conn) sendBatch(t *codec.Transaction, size codec.Size, generation uint32, trial bool) (first uint32, err error) {
	if err := c.growBuffers(size); err != nil {
		return 0, fmt.Errorf("set socket buffer: %w", err)
	}
	first = c.sequence
	c.sequence += uint32(len(t.Messages)) + 2
	batch := c.batchOf(t, generation, first)
	if trial {
		batch = batch[:len(batch)-batchEnd]
	}
	if err := c.write(batch); err != nil {
		return 0, fmt.Errorf("send %d messages of %d bytes: %w", size.Messages, size.Bytes, addRemedy(err))
	}
	return first, nil
}

// batchOf returns the messages between those that begin and end a batch, numbered
// from first on. Only the last one of ours asks for an acknowledgement, which
// arrives after everything is done. The result is valid until the next call.
func (c *Conn) batchOf(t *codec.Transaction, generation, first uint32) []byte {
	header := [netlinkio.HeaderLength]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	var room [16]byte
	begin := codec.Attributes(append(room[:0], header[:]...))
	begin.Uint32(unix.NFNL_BATCH_GENID, generation)

	size := t.Size()
	b := slices.Grow(c.batch[:0], size.Bytes+(size.Messages+2)*(unix.NLMSG_HDRLEN+unix.NLMSG_ALIGNTO)+len(begin)+len(header))
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
	b = appendMessage(b, unix.NFNL_MSG_BATCH_END, netlink.Request, first+1, header[:])
	if cap(b) <= keptBatch {
		c.batch = b
	}
	return b
}

// keptBatch is the most bytes that are kept for the next batch: a part of a load fits.
const keptBatch = 1 << 20

const batchEnd = unix.NLMSG_HDRLEN + netlinkio.HeaderLength

// appendMessage appends a padded netlink message. A batch can have tens of
// megabytes: it is copied only here.
func appendMessage(b []byte, typ netlink.HeaderType, flags netlink.HeaderFlags, sequence uint32, data []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.NLMSG_HDRLEN+len(data)))
	b = binary.NativeEndian.AppendUint16(b, uint16(typ))
	b = binary.NativeEndian.AppendUint16(b, uint16(flags))
	b = binary.NativeEndian.AppendUint32(b, sequence)
	b = binary.NativeEndian.AppendUint32(b, 0) // our port: the kernel knows it
	b = append(b, data...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

// write sends a batch to the kernel, which carries it out before this returns.
func (c *Conn) write(batch []byte) error {
	if c.dirty {
		if err := c.drainIfDirty(); err != nil {
			return err
		}
	}
	if c.Sent != nil {
		if _, err := c.Sent.Write(batch); err != nil {
			return err
		}
	}
	return c.socket.write(batch)
}

// growBuffers makes room for a batch, which must be sent in one piece, and for an
// error to each of its messages.
func (c *Conn) growBuffers(s codec.Size) error {
	const perMessage = 1 << 10
	room := s.Bytes + (s.Messages+2)*perMessage
	if c.room >= room {
		return nil
	}
	have, err := c.socket.sendBufferSize()
	if err != nil {
		return err
	}
	if c.room = have; have >= room {
		return nil
	}
	c.room = 0
	return c.socket.growBuffers(room)
}

// ErrNoAnswer means that it is unknown whether the kernel committed a transaction.
var ErrNoAnswer = errors.New("commit: the kernel's answer is lost")

// receiveResult returns the errors that answer a batch, up to the acknowledgement,
// which has the number of the last message. The kernel processes a batch while it
// is being sent, so all answers are on the socket already.
func (c *Conn) receiveResult(last uint32) (answers []error, err error) {
	if c.receiveAcknowledgement(last) {
		return nil, nil
	}
	for c.socket.hasDatagram() { // the answers come in the order of the messages
		replies, err := c.nl.Receive()
		switch {
		case isAnswer(err):
			answers = append(answers, err)
		case err != nil:
			c.dirty = true
			return answers, fmt.Errorf("%w: %w", ErrNoAnswer, err)
		}
		if slices.ContainsFunc(replies, func(m netlink.Message) bool {
			return m.Header.Type == netlink.Error && m.Header.Sequence == last
		}) {
			return answers, nil
		}
	}
	if len(answers) == 0 {
		return nil, ErrNoAnswer
	}
	return answers, nil
}

// ackLength is the length of an acknowledgement (struct nlmsgerr of linux/netlink.h): of
// a message that was carried out the kernel repeats the header alone.
const ackLength = unix.NLMSG_HDRLEN + unix.SizeofNlMsgerr

// receiveAcknowledgement takes the acknowledgement of the last message, if that is all that is on
// the socket: the usual end of a transaction. It reports whether it was.
func (c *Conn) receiveAcknowledgement(last uint32) bool {
	b := c.socket.peekDatagram()
	if len(b) != ackLength || netlink.HeaderType(binary.NativeEndian.Uint16(b[4:])) != netlink.Error ||
		binary.NativeEndian.Uint32(b[8:]) != last || binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN:]) != 0 {
		return false
	}
	_, _ = c.socket.receiveDatagram() // the same, which is no error
	return true
}

// refusedObject names the refused object, by the index of the message and, within a list of
// elements, by the offset of the attribute from the start of the netlink header.
// Without an offset it can be any element.
func refusedObject(t *codec.Transaction, i, offset int) *CommitError {
	if i < 0 || i >= len(t.Messages) {
		return &CommitError{Object: "whole transaction"}
	}
	m := &t.Messages[i]
	if m.Object != "" {
		return &CommitError{Object: m.Object}
	}
	name, offset := m.Set.Keyword()+" "+m.Set.Name, offset-unix.NLMSG_HDRLEN
	if offset < m.Parts[0].Offset && len(m.Parts) > 1 {
		return &CommitError{Object: fmt.Sprintf("%s one of %d elements of %s", m.Verb(), len(m.Parts), name), Set: m.Set}
	}
	n := len(m.Parts) - 1
	for n > 0 && m.Parts[n].Offset > offset {
		n--
	}
	e := m.Parts[n].Element
	return &CommitError{Object: fmt.Sprintf("%s element { %s } of %s", m.Verb(), m.Set.ElementText(e), name), Set: m.Set, Element: e}
}

type Refusal struct {
	*codec.Message
	Expression string // the refused part of a rule; empty for something else
	Err        error  // unwraps to the errno
}

const trialTable = nft.TableName + "-trial"

// Try returns the parts of a plan that the kernel refuses. It sends a batch for a dormant
// table of another name and does not end it: the kernel carries out each message,
// loads the modules that it needs, and then undoes everything. The rules see no
// packets, watchers do not see the rules, and the generation does not change.
func (c *Conn) Try(p *plan.Plan) ([]Refusal, error) {
	t, err := codec.Encode(p)
	if err != nil {
		return nil, err
	}
	return c.tryTransaction(t, unix.NFT_TABLE_F_DORMANT)
}

// Check implements apply.Kernel as [Conn.Try] does: what our tables hold, and who else
// changes them, makes no difference.
func (c *Conn) Check(p *plan.Plan) error {
	t, err := codec.Encode(p)
	if err != nil {
		return err
	}
	t = inTrialTable(t, unix.NFT_TABLE_F_DORMANT)
	_, err = retryQuestion(func() (none struct{}, err error) {
		first, err := c.sendBatch(t, t.Size(), AnyGeneration, true)
		if err != nil {
			return none, fmt.Errorf("try: %w", err)
		}
		return none, c.receiveAnswer(t, first)
	})
	return err
}

func (c *Conn) tryTransaction(t *codec.Transaction, flags uint32) ([]Refusal, error) {
	t = inTrialTable(t, flags)
	return retryQuestion(func() ([]Refusal, error) { return c.tryOnce(t) })
}

func (c *Conn) tryOnce(t *codec.Transaction) ([]Refusal, error) {
	first, err := c.sendBatch(t, t.Size(), AnyGeneration, true)
	if err != nil {
		return nil, fmt.Errorf("try: %w", err)
	}
	answers, err := c.receiveResult(first + uint32(len(t.Messages)))
	var out []Refusal
	for _, answer := range answers {
		var op *netlink.OpError
		_ = errors.As(answer, &op) // it is an answer
		i := int(op.Sequence-first) - 1
		if i < 0 || i >= len(t.Messages) || OutcomeOf(answer) != Refused {
			return nil, answer // it is not about the message
		}
		m := &t.Messages[i]
		out = append(out, Refusal{m, expressionAt(m, op.Offset-unix.NLMSG_HDRLEN), answer})
	}
	return out, err
}

// inTrialTable returns the transaction for the trial table, with these flags.
func inTrialTable(t *codec.Transaction, flags uint32) *codec.Transaction {
	header := len(codec.InTable(model.IPv4))
	out := &codec.Transaction{Messages: slices.Clone(t.Messages)}
	for i := range out.Messages {
		m := &out.Messages[i]
		a := slices.Clone(codec.Attributes(m.Data[:netlinkio.HeaderLength]))
		a.Text(unix.NFTA_TABLE_NAME, trialTable)
		a = append(a, m.Data[header:]...)
		if m.Type == unix.NFT_MSG_NEWTABLE {
			a.Uint32(unix.NFTA_TABLE_FLAGS, flags)
		}
		m.Data = a
	}
	return out
}

// expressionAt returns the name of the expression at an offset of a rule. Kernels
// report the offset since 5.10.
func expressionAt(m *codec.Message, offset int) string {
	if m.Type != unix.NFT_MSG_NEWRULE || offset < netlinkio.HeaderLength || offset >= len(m.Data) {
		return ""
	}
	var err error // means that there is none
	a := netlinkio.Read(m.Data[offset:], &err)
	if !a.Next() || a.Type != unix.NFTA_LIST_ELEM {
		return ""
	}
	return codec.ExpressionName(a.Nested())
}
