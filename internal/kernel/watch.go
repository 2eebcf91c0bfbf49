package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
)

// Intervention is a transaction of another program that changed our tables.
type Intervention struct {
	// By is the sender, with its process ID on the node, not in its container. The
	// zero Process means that it is unknown.
	By      host.Process
	Touched []string // the first few changed objects, in words
	// Counts has the number of objects by their kind: table, chain, rule, set,
	// map, element, object.
	Counts map[string]int
	// Missed means that messages of the kernel were lost: anything may have changed.
	Missed bool
	// Urgent means that connections fail until the repair, and not those of a single
	// element: a table is gone; or a program other than nftproxy has changed a table,
	// chain, rule, set or map, or removed several elements of one.
	Urgent bool
}

// maxTouched is how many objects an Intervention names.
const maxTouched = 5

// eventBuffer is the space for messages that are not yet received, in bytes: some
// thousand elements. When it overflows everything is compared.
const eventBuffer = 1 << 20

// Watcher reports what other programs do to our tables. The transactions of one
// connection do not wake it.
type Watcher struct {
	nl     atomic.Pointer[netlink.Conn]
	own    uint32                    // netlink port of the connection whose transactions do not count
	ask    *Conn                     // about sets
	seen   map[model.Family]*touched // by the current transaction
	missed atomic.Bool               // something may have happened while the watch was off
	ends   atomic.Bool               // Next is to return
	name   string                    // of this process, and so of another daemon
}

// touched collects what happens to one table.
type touched struct {
	texts   []string
	counts  map[string]int
	gone    bool           // the table
	removed map[string]int // numbers of elements by the names of their sets
}

func (t *touched) breaksRules() bool {
	for kind := range t.counts {
		if kind != elementKind {
			return true
		}
	}
	for _, n := range t.removed {
		if n > 1 {
			return true
		}
	}
	return false
}

// elementKind is the key of elements in [Intervention].Counts.
const elementKind = "element"

// Watch returns a watcher for all transactions except the ones of own. It sees
// everything that happens after Watch returns.
func Watch(own *Conn) (*Watcher, error) {
	w := &Watcher{own: own.nl.PID(), seen: make(map[model.Family]*touched), name: host.ProcessWith(os.Getpid()).Name}
	if err := w.open(); err != nil {
		return nil, err
	}
	var err error
	if w.ask, err = Open(); err != nil {
		return nil, errors.Join(err, w.currentSocket().Close())
	}
	own.watcher = w
	return w, nil
}

// currentSocket returns the socket of the watch, which changes when it has failed.
func (w *Watcher) currentSocket() *netlink.Conn { return w.nl.Load() }

func (w *Watcher) open() error {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: receiveBuffer})
	if err != nil {
		return fmt.Errorf("watch rules: open netlink socket: %w", err)
	}
	if err := subscribeToEvents(nl, w.own); err != nil {
		return errors.Join(fmt.Errorf("watch rules: %w", err), nl.Close())
	}
	if failed := w.nl.Swap(nl); failed != nil {
		_ = failed.Close() // it may be closed
	}
	return nil
}

// manyBytes is the size of the transactions during which the watch is off. While
// there are listeners the kernel allocates a message of 4 KiB for each changed
// object and keeps all of them to the end, whether a filter accepts them or not.
const manyBytes = 64 << 10

// pauseWatch ends the watch until the function that it returns is called, which finds
// out whether another program made a transaction in the meantime. The socket of a
// watch that cannot resume is closed, so that [Watcher.Next] opens another one.
func (w *Watcher) pauseWatch(c *Conn) (resume func(committed bool)) {
	before, err := c.Generation()
	nl := w.currentSocket()
	if err != nil || nl.LeaveGroup(unix.NFNLGRP_NFTABLES) != nil {
		return func(bool) {}
	}
	return func(committed bool) {
		if err := nl.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
			nl.Close()
			return
		}
		if committed {
			before++
		}
		if after, err := c.Generation(); err != nil || after != before {
			w.missed.Store(true)
			_ = nl.SetReadDeadline(time.Now()) // wakes Next
		}
	}
}

func subscribeToEvents(nl *netlink.Conn, except uint32) error {
	if err := nl.SetReadBuffer(eventBuffer); err != nil {
		return fmt.Errorf("set socket buffer: %w", err)
	}
	// The kernel puts the port of the sender of a transaction into the header of
	// each message about it. A datagram has messages of one transaction.
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 4}, // nlmsg_pid of linux/netlink.h
		// Filters load in network byte order.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, except)), SkipFalse: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 1<<32 - 1},
	})
	if err != nil {
		return fmt.Errorf("assemble filter: %w", err)
	}
	if err := nl.SetBPF(filter); err != nil {
		return fmt.Errorf("set filter: %w", err)
	}
	if err := nl.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return fmt.Errorf("join group: %w", err)
	}
	return nil
}

// Close ends the watch, and makes Next return.
func (w *Watcher) Close() error {
	w.ends.Store(true)
	return errors.Join(w.currentSocket().Close(), w.ask.Close())
}

// ErrStopped is the error of Next after Stop.
var ErrStopped = errors.New("watch rules: stopped")

// Stop makes Next return. The watch goes on, for [Watcher.Rest].
func (w *Watcher) Stop() {
	w.ends.Store(true)
	_ = w.currentSocket().SetReadDeadline(time.Now()) // wakes Next
}

// Next waits for the next transaction of another program that changes our tables.
// Bindings of clients are state, which is not reported. If the socket has failed, Next opens
// another one: an error means that this has failed too, and another call tries again.
func (w *Watcher) Next() (Intervention, error) {
	for {
		i, err := w.receiveIntervention()
		switch {
		case err != nil && w.ends.Load():
			return Intervention{}, err
		case err != nil:
			if again := w.open(); again != nil {
				return Intervention{}, errors.Join(err, again)
			}
			clear(w.seen)
			if w.ends.Load() { // Stop has woken the socket that failed
				w.Stop()
			}
			return Intervention{Missed: true}, nil
		case i != nil:
			return *i, nil
		case w.ends.Load():
			return Intervention{}, ErrStopped
		}
	}
}

// Rest returns a generation, and reports whether another program may have changed our tables
// before it without a report of Next, which must have returned after Stop.
func (w *Watcher) Rest(own *Conn) (generation uint32, changed bool, err error) {
	if generation, err = own.Generation(); err != nil {
		return 0, false, err
	}
	// The kernel sends the messages about a transaction before it begins another one, also one
	// that it undoes.
	if err := own.tryTable(unix.NFT_TABLE_F_DORMANT); err != nil {
		return 0, false, fmt.Errorf("watch rules: await the last transaction: %w", err)
	}
	raw, err := w.currentSocket().SyscallConn()
	if err != nil {
		return 0, false, fmt.Errorf("watch rules: use netlink socket: %w", err)
	}
	for {
		more, err := isReadable(raw)
		if err != nil || !more {
			return generation, changed || w.missed.Load(), err
		}
		netlinkio.Renew(w.currentSocket())
		i, err := w.receiveIntervention()
		if err != nil {
			return 0, false, err
		}
		changed = changed || i != nil
	}
}

// receiveIntervention waits for a datagram, or for the deadline. It returns the transaction that the
// datagram completes if that has changed our tables; nil: none.
func (w *Watcher) receiveIntervention() (*Intervention, error) {
	nl := w.currentSocket()
	messages, err := nl.Receive()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		if err := nl.SetReadDeadline(time.Time{}); err != nil {
			return nil, fmt.Errorf("watch rules: %w", err)
		}
		if w.missed.Swap(false) {
			return &Intervention{Missed: true}, nil
		}
		return nil, nil
	case errors.Is(err, unix.ENOBUFS):
		clear(w.seen)
		return &Intervention{Missed: true}, nil
	case err != nil:
		return nil, fmt.Errorf("watch rules: %w", err)
	}
	for _, m := range messages {
		if i := w.recordMessage(m); i != nil { // the end of a transaction has its own datagram
			return i, nil
		}
	}
	return nil, nil
}

// recordMessage records the contents of a message. The last one of a transaction yields an
// Intervention if one of our tables changed.
func (w *Watcher) recordMessage(m netlink.Message) *Intervention {
	kind := uint16(m.Header.Type) & 0xff
	if uint16(m.Header.Type)>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < netlinkio.HeaderLength {
		return nil
	}
	if kind == unix.NFT_MSG_NEWGEN {
		return w.endTransaction(m)
	}
	for _, f := range model.Families {
		if m.Data[0] != codec.FamilyNumber(f) || nameIn(m, unix.NFTA_TABLE_NAME) != nft.TableName {
			continue
		}
		if kind == unix.NFT_MSG_DELTABLE {
			delete(w.seen, f) // with all its objects
		}
		t := w.seen[f]
		if t == nil {
			t = &touched{counts: make(map[string]int), removed: make(map[string]int)}
			w.seen[f] = t
		}
		w.describe(t, kind, f, m)
	}
	return nil
}

func (w *Watcher) endTransaction(m netlink.Message) *Intervention {
	i := &Intervention{Counts: make(map[string]int)}
	breaks := false
	for _, f := range model.Families {
		if t := w.seen[f]; t != nil {
			i.Urgent, breaks = i.Urgent || t.gone, breaks || t.breaksRules()
			i.Touched = append(i.Touched, t.texts...)
			for kind, n := range t.counts {
				i.Counts[kind] += n
			}
		}
	}
	clear(w.seen)
	if len(i.Counts) == 0 {
		return nil
	}
	i.Touched = i.Touched[:min(len(i.Touched), maxTouched)]
	var err error // means that the sender is unknown
	a := netlinkio.ReadMessage(m.Data, &err)
	for a.Next() {
		switch a.Type {
		case unix.NFTA_GEN_PROC_PID:
			i.By.PID = int(a.Uint32())
		case unix.NFTA_GEN_PROC_NAME:
			i.By.Name = string(a.Text())
		}
	}
	i.By = i.By.OfThread()
	i.Urgent = i.Urgent || breaks && i.By.Name != w.name
	return i
}

// add records an object. It only calls text while there are not enough texts.
func (t *touched) add(kind string, text func() string) {
	t.counts[kind]++
	if len(t.texts) < maxTouched {
		t.texts = append(t.texts, text())
	}
}

func (w *Watcher) describe(t *touched, kind uint16, f model.Family, m netlink.Message) {
	c := plan.Change{Verb: plan.Add, Family: f}
	switch kind {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELSETELEM, unix.NFT_MSG_DELOBJ:
		c.Verb = plan.Delete
	}
	switch kind {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE:
		t.gone = kind == unix.NFT_MSG_DELTABLE
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		c.Chain, _, _ = codec.DecodeChain(m)
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		c.Chain = &nft.Chain{Name: nameIn(m, unix.NFTA_RULE_CHAIN)}
		t.add("rule", func() string { return fmt.Sprintf("%s rule of chain %s", c.Verb, c.Path()) })
		return
	case unix.NFT_MSG_NEWSET, unix.NFT_MSG_DELSET:
		if c.Set, _, _ = codec.DecodeSet(m, f); c.Set == nil {
			return // part of a rule
		}
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		w.describeElements(t, c, m)
		return
	default:
		t.add("object", func() string { return fmt.Sprintf("%s object in table %s", c.Verb, c.Path()) })
		return
	}
	t.add(c.Kind(), c.Text)
}

// describeElements records the elements in a message. It asks the kernel for the
// key type of the set, which may no longer exist.
func (w *Watcher) describeElements(t *touched, c plan.Change, m netlink.Message) {
	name := nameIn(m, unix.NFTA_SET_ELEM_LIST_SET)
	if c := nft.RowOf(name).Contents; c == nft.Arrivals || c == nft.Bindings {
		return
	}
	c.Set = &nft.Set{Name: name}
	var elements []codec.Element
	if len(t.texts) < maxTouched {
		if s, _, err := w.ask.Set(name, c.Family); err == nil {
			_ = codec.NewElementDecoder(s, c.Family).Message(m.Data, func(e *codec.Element) error { elements = append(elements, *e); return nil })
			s.Interval = false // the message has starts and ends of intervals
			c.Set = s
		}
	}
	add := func(text func() string) {
		if t.add(elementKind, text); c.Verb == plan.Delete {
			t.removed[name]++
		}
	}
	if len(elements) == 0 {
		add(func() string { return fmt.Sprintf("%s element of %s", c.Verb, c.Path()) })
		return
	}
	for i := range elements {
		if !elements[i].IntervalEnd {
			c.New = &elements[i].Element
			add(c.Text)
		}
	}
}

func nameIn(m netlink.Message, attribute uint16) string {
	var err error // ends the list
	a := netlinkio.ReadMessage(m.Data, &err)
	for a.Next() {
		if a.Type == attribute {
			return string(a.Text())
		}
	}
	return ""
}
