package kernel

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
)

const (
	// askFrom is the number of elements from which asking for them by key takes less
	// time and memory than listing them. The kernel walks a set from its start again
	// for each datagram of a listing, so that takes four times as long for twice
	// as many.
	askFrom = 1 << 13
	// askPart is how many elements are asked for over one connection.
	askPart = 1 << 12
	// askAtOnce is how many elements are in one question. Their answers wait on the
	// socket, and take half of its usual buffer.
	askAtOnce = 128
	// maxAnswer is more than the kernel says about one element. An error repeats the
	// question behind what is read of it.
	maxAnswer = 2 << 10
	// answersAtOnce is how many answers one system call receives.
	answersAtOnce = 32
)

// isWorthAsking reports whether a set of the kernel may be read by the keys of the
// elements that are wanted in it: if it holds about as many, and the kernel reports
// how many.
func (e *elements) isWorthAsking(from int) bool {
	return e.wanted != nil && !e.set.Interval && e.set.Same(e.wanted) &&
		e.count >= from && len(e.wanted.Elements) <= 2*e.count
}

// readByKey fills a set with the wanted elements that it has. If nothing differs,
// the set shares them.
func (e *elements) readByKey(c *Conn) error {
	parts := slices.Collect(slices.Chunk(e.wanted.Elements, askPart))
	differs := make([]bool, len(parts))
	if err := c.runParallel(len(parts), func(c *Conn, i int) error {
		q := newInquiry(e.set, e.family, parts[i])
		err := q.run(c)
		parts[i], differs[i] = q.found, q.differs
		return err
	}); err != nil {
		return err
	}
	e.set.Elements = e.wanted.Elements
	if slices.Contains(differs, true) {
		e.set.Elements = slices.Concat(parts...)
	}
	return nil
}

func (e *elements) isComplete(c *Conn) bool {
	if len(e.set.Elements) != e.count {
		return false
	}
	lacks, err := c.lacksCatchAll(e.set, e.family)
	return lacks && err == nil
}

// lacksCatchAll reports whether a set has no element without a key. The kernel does
// not count it.
func (c *Conn) lacksCatchAll(s *nft.Set, f model.Family) (bool, error) {
	a := codec.InSet(s.Name, f)
	endList := a.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	end := a.Nest(unix.NFTA_LIST_ELEM)
	a.Uint32(unix.NFTA_SET_ELEM_FLAGS, codec.ElementCatchAll)
	end()
	endList()
	_, err := c.sendRequest(unix.NFT_MSG_GETSETELEM, netlink.Request, a)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	return false, err
}

// Inquiry asks for elements of one set by their keys. The kernel answers each key
// of a question with a datagram, in the same order, up to the first key that
// it does not have.
type Inquiry struct {
	wanted  []nft.Element
	next    int           // of wanted: the first one without an answer
	found   []nft.Element // in the kernel: a part of wanted, unless it differs
	differs bool
	// inRow means that after a missing element there are no others.
	inRow bool
	// collects keeps the elements in collected, with their counters.
	collects  bool
	collected []codec.Element

	decoder *codec.ElementDecoder
	header  int              // length of what all questions begin with
	data    codec.Attributes // of a question
	message []byte
	answers *inbox
	serial  uint32
}

func newInquiry(s *nft.Set, f model.Family, wanted []nft.Element) *Inquiry {
	data := codec.InSet(s.Name, f)
	return &Inquiry{wanted: wanted, decoder: codec.NewElementDecoder(s, f), data: data, header: len(data), answers: newInbox(answersAtOnce, maxAnswer)}
}

func NewInquiry(s *nft.Set, f model.Family) *Inquiry {
	q := newInquiry(s, f, nil)
	q.collects = true
	return q
}

// Ask returns those of some elements that the set has, with any values.
func (q *Inquiry) Ask(c *Conn, wanted []nft.Element) ([]codec.Element, error) {
	q.wanted, q.next, q.found, q.differs, q.collected = wanted, 0, nil, false, nil
	err := q.run(c)
	return q.collected, err
}

// guesses is how many slots are asked for in a row.
const guesses = 16

// AskSlots returns the elements of a frontend, from the slot of the key up to the first slot that
// is empty.
func (q *Inquiry) AskSlots(c *Conn, k nft.Key) ([]codec.Element, error) {
	q.collected = nil
	for q.inRow = true; ; {
		q.wanted, q.next, q.found, q.differs = q.wanted[:0], 0, q.found[:0], true
		for range guesses {
			q.wanted = append(q.wanted, nft.Element{Key: k})
			k.Slot++
		}
		if err := q.run(c); err != nil || len(q.found) < len(q.wanted) {
			return q.collected, err
		}
	}
}

func (q *Inquiry) run(c *Conn) error {
	if err := c.drainIfDirty(); err != nil {
		return err
	}
	var err error
	for q.next < len(q.wanted) && err == nil {
		err = q.askSome(c.socket)
	}
	c.noteFailure(err)
	if !q.differs {
		q.found = q.wanted
	}
	return err
}

// askSome sends one question and reads its answers, which are on the socket when the
// question is sent: the kernel answers while it is being sent.
func (q *Inquiry) askSome(s *socket) error {
	n := min(askAtOnce, len(q.wanted)-q.next)
	err := s.write(q.encodeQuestion(q.wanted[q.next:][:n]))
	for n > 0 && err == nil {
		var received int
		received, err = s.receiveMany(q.answers, n)
		for i := 0; i < received && err == nil; i++ {
			err = q.decodeAnswer(q.answers.datagramAt(i))
		}
		n -= received
	}
	if !errors.Is(err, errMissing) {
		return err
	}
	if q.inRow {
		q.next = len(q.wanted)
	}
	return nil // but there are no answers to the other keys
}

func (q *Inquiry) encodeQuestion(elements []nft.Element) []byte {
	q.data = q.data[:q.header]
	list := q.data.Start(unix.NFTA_SET_ELEM_LIST_ELEMENTS | codec.Nested)
	for i := range elements {
		element := q.data.Start(unix.NFTA_LIST_ELEM | codec.Nested)
		codec.AppendElementKey(&q.data, unix.NFTA_SET_ELEM_KEY, q.decoder.Set, elements[i].Key)
		q.data.End(element)
	}
	q.data.End(list)
	q.serial++
	q.message = appendMessage(q.message[:0], messageType(unix.NFT_MSG_GETSETELEM), netlink.Request, q.serial, q.data)
	return q.message
}

var (
	// errMissing is the answer to a key that the set does not have.
	errMissing = errors.New("no such element")
	errAnswer  = errors.New("decode answer: it is not about the element that was asked for")
)

func (q *Inquiry) decodeAnswer(answer []byte) error {
	if len(answer) < unix.NLMSG_HDRLEN+netlinkio.HeaderLength || binary.NativeEndian.Uint32(answer[8:]) != q.serial {
		return errAnswer
	}
	typ, data := netlink.HeaderType(binary.NativeEndian.Uint16(answer[4:])), answer[unix.NLMSG_HDRLEN:]
	if typ == netlink.Error {
		if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(data))); errno != unix.ENOENT {
			return errno
		}
		q.copyWanted()
		q.next++
		return errMissing
	}
	wanted := q.next
	q.decoder.Expected = &q.wanted[wanted]
	err := q.decoder.Message(data, q.compareElement)
	if err == nil && q.next != wanted+1 {
		err = errAnswer
	}
	return err
}

func (q *Inquiry) compareElement(e *codec.Element) error {
	if q.next == len(q.wanted) || q.wanted[q.next].Key != e.Key {
		return errAnswer
	}
	if q.wanted[q.next] != e.Element {
		q.copyWanted()
	}
	if q.differs {
		q.found = append(q.found, e.Element)
	}
	if q.collects {
		q.collected = append(q.collected, *e)
	}
	q.next++
	return nil
}

// copyWanted begins a copy of the wanted elements, because the next one differs.
func (q *Inquiry) copyWanted() {
	if !q.differs {
		q.differs = true
		q.found = append(make([]nft.Element, 0, len(q.wanted)), q.wanted[:q.next]...)
	}
}

// Elements that nothing expects cannot be asked for, unless their keys can be guessed:
// after Services were deleted or scaled down, those that are left belong to the
// frontends that are not as expected in the map of all frontends. If these are all,
// the large sets need not be listed.

// isOfFrontends reports whether the keys of a set are frontends, or their slots, in the map
// of all frontends.
func (e *elements) isOfFrontends() bool {
	return e.set.Name != nft.ServicesMap && e.set.Name != nft.ServersMap && slices.Contains(e.set.Key, nft.Address) &&
		!slices.ContainsFunc(e.set.Key, func(d nft.Datatype) bool {
			return !slices.Contains([]nft.Datatype{nft.Address, nft.InetProto, nft.Port, nft.ClassID}, d)
		})
}

// unexpectedFrontends returns the keys in the map of all frontends whose elements are not
// wanted as they are. It must have been read.
func unexpectedFrontends(sets []*elements, f model.Family) (keys []nft.Key) {
	for _, e := range sets {
		if e.family != f || e.set.Name != nft.ServicesMap {
			continue
		}
		for i := range e.set.Elements {
			if w := e.findWanted(e.set.Elements[i].Key); w == nil || *w != e.set.Elements[i] {
				keys = append(keys, e.set.Elements[i].Key)
			}
		}
	}
	return keys
}

func (e *elements) findWanted(k nft.Key) *nft.Element {
	if e.wanted == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(e.wanted.Elements, k, func(e nft.Element, k nft.Key) int { return e.Key.Compare(k) })
	if !ok {
		return nil
	}
	return &e.wanted.Elements[i]
}

func (e *elements) askAbout(c *Conn, frontends []nft.Key) error {
	var found []nft.Element
	q := newInquiry(e.set, e.family, nil)
	q.inRow = true
	for _, k := range frontends {
		for more := true; more; k.Slot++ {
			q.wanted = e.appendGuesses(q.wanted[:0], k)
			q.next, q.found, q.differs = 0, q.found[:0], true
			if err := q.run(c); err != nil {
				return err
			}
			found = append(found, q.found...)
			if more = e.set.HasSlots() && len(q.found) == len(q.wanted); more {
				k.Slot = q.wanted[len(q.wanted)-1].Key.Slot
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	e.set.Elements = append(slices.Clip(e.set.Elements), found...)
	e.set.Sort()
	e.set.Elements = slices.CompactFunc(e.set.Elements, func(a, b nft.Element) bool { return a.Key == b.Key })
	return nil
}

// appendGuesses appends keys that a set may have because of a frontend, from its slot on, and
// that are not wanted.
func (e *elements) appendGuesses(out []nft.Element, frontend nft.Key) []nft.Element {
	k := nft.Key{Address: frontend.Address}
	if slices.Contains(e.set.Key, nft.InetProto) {
		k.Protocol = frontend.Protocol
	}
	if slices.Contains(e.set.Key, nft.Port) {
		k.Port = frontend.Port
	}
	if !e.set.HasSlots() {
		if e.findWanted(k) == nil {
			out = append(out, nft.Element{Key: k})
		}
		return out
	}
	for k.Slot = max(frontend.Slot, nft.FirstSlot); e.findWanted(k) != nil; k.Slot++ {
	}
	for range guesses {
		out = append(out, nft.Element{Key: k})
		k.Slot++
	}
	return out
}
