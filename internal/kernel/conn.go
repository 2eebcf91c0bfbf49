package kernel

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Conn is a netlink socket to nf_tables in the network namespace of the thread
// that opened it. It is not safe for concurrent use.
type Conn struct {
	nl        *netlink.Conn
	socket    *socket      // of nl
	room      int          // for a batch in the socket's buffers, in bytes; zero: unknown
	Log       *slog.Logger // of transactions that the kernel refuses; may be nil
	Sent      io.Writer    // if set, gets each batch in one piece
	sequence  uint32       // of the next message in a batch
	batch     []byte       // the memory of the last one
	owns      bool         // the tables that it adds
	namespace *os.File     // of the network
	// lacksDestroy means that the kernel is older than 6.3.
	lacksDestroy bool
	dirty        bool     // parts of an earlier answer may be left on the socket
	watcher      *Watcher // of other programs; nil: none
}

// receiveBuffer is the space for one datagram, in bytes. The kernel fills the
// datagrams of a dump up to 32 KiB if the receiver has room for that, and walks
// a set from its start again for each of them: with datagrams of a page, dumping
// 44,000 elements takes several times as long. An error contains the message that
// it is about, which has at most 64 KiB.
const receiveBuffer = 128 << 10

// Open connects to nf_tables. Reading needs CAP_NET_ADMIN, like writing.
func Open() (*Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	namespace, err := openNamespace()
	if err != nil {
		return nil, err
	}
	return open(namespace, 0)
}

func openNamespace() (*os.File, error) {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	return f, nil
}

// open connects in the namespace of the calling thread, or in another one. It
// takes ownership of the file.
func open(namespace *os.File, other int) (*Conn, error) {
	socket, nl, err := dialSocket(other)
	if err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	return &Conn{nl: nl, socket: socket, namespace: namespace}, nil
}

// withSibling asks a question over a separate connection to the same network
// namespace, until there is an answer or a permanent error. A namespace other
// than the one of the calling thread, as in tests, needs CAP_SYS_ADMIN.
func withSibling[T any](c *Conn, ask func(*Conn) (T, error)) (T, error) {
	return retryQuestion(func() (v T, err error) {
		sibling, err := c.openSibling()
		if err != nil {
			return v, err
		}
		defer func() {
			if closeErr := sibling.Close(); !errors.Is(closeErr, os.ErrClosed) {
				err = errors.Join(err, closeErr)
			}
		}()
		return ask(sibling)
	})
}

func (c *Conn) openSibling() (*Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := openNamespace()
	if err != nil {
		return nil, err
	}
	here, hereErr := own.Stat()
	there, thereErr := c.namespace.Stat()
	if err := errors.Join(hereErr, thereErr); err != nil {
		return nil, errors.Join(fmt.Errorf("compare network namespaces: %w", err), own.Close())
	}
	if os.SameFile(here, there) {
		return open(own, 0)
	}
	return open(own, int(c.namespace.Fd()))
}

// Close closes the socket. The rules stay.
func (c *Conn) Close() error { return errors.Join(c.nl.Close(), c.namespace.Close()) }

func (c *Conn) sendRequest(typ uint16, flags netlink.HeaderFlags, data []byte) ([]netlink.Message, error) {
	if err := c.drainIfDirty(); err != nil {
		return nil, err
	}
	replies, err := c.nl.Execute(newQuestion(typ, flags, data))
	c.noteFailure(err)
	return replies, err
}

// requestAll asks for a list. It asks again while the kernel reports that the list
// changed during the dump.
func (c *Conn) requestAll(typ uint16, data []byte) ([]netlink.Message, error) {
	for range askAttempts {
		replies, err := c.sendRequest(typ, netlink.Request|netlink.Dump, data)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(replies, func(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 }) {
			return replies, nil
		}
	}
	return nil, unix.EINTR
}

func newQuestion(typ uint16, flags netlink.HeaderFlags, data []byte) netlink.Message {
	return netlink.Message{Header: netlink.Header{Type: messageType(typ), Flags: flags}, Data: data}
}

// anyFamily is the header of a message without a family.
var anyFamily = codec.Attributes{unix.NFPROTO_UNSPEC, unix.NFNETLINK_V0, 0, 0}

func messageType(typ uint16) netlink.HeaderType {
	return netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | typ)
}

func (c *Conn) drainIfDirty() error {
	if !c.dirty {
		return nil
	}
	return c.drainSocket()
}

// noteFailure records whether an error may have left parts of an answer on the socket,
// where the next question would take them for its own.
func (c *Conn) noteFailure(err error) {
	c.dirty = c.dirty || err != nil && (!isAnswer(err) || errors.Is(err, unix.EBUSY))
}

// isAnswer reports whether an error is an answer of the kernel; otherwise the
// socket failed.
func isAnswer(err error) bool {
	var op *netlink.OpError
	if !errors.As(err, &op) {
		return false
	}
	_, ok := op.Err.(syscall.Errno)
	return ok
}

// maxFailures is how often receiving may fail before drain gives up.
const maxFailures = 3

// drainSocket discards the rest of the messages on the socket. The kernel continues an aborted dump
// whenever something is received, and refuses the next one until then (EBUSY).
// One more question makes sure that there is something to receive.
func (c *Conn) drainSocket() error {
	if _, err := c.nl.Send(newQuestion(unix.NFT_MSG_GETGEN, netlink.Request, anyFamily)); err != nil {
		return err
	}
	for failures := 0; c.socket.hasDatagram(); {
		if err := c.discardAnswer(); err != nil && !isAnswer(err) {
			if failures++; failures == maxFailures {
				return err
			}
		}
	}
	c.dirty = false
	return nil
}

func (c *Conn) discardAnswer() error {
	for _, err := range c.nl.ReceiveIter() {
		if err != nil {
			return err
		}
	}
	return nil
}

func isReadable(raw syscall.RawConn) (bool, error) {
	var n int
	pollErr := error(unix.EINTR)
	controlErr := raw.Control(func(fd uintptr) {
		for fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}; errors.Is(pollErr, unix.EINTR); {
			n, pollErr = unix.Poll(fds, 0)
		}
	})
	if controlErr != nil {
		return false, controlErr
	}
	return n > 0, pollErr
}

// askAttempts is how often a question is asked while other programs change the
// ruleset, or while there is no memory for the answer.
const askAttempts = 20

// maxLost is how many answers may get lost before a question fails.
const maxLost = 3

// retryQuestion asks until there is an answer or a permanent error. Questions change
// nothing.
func retryQuestion[T any](ask func() (T, error)) (T, error) {
	lost := 0
	for attempt := 1; ; attempt++ {
		v, err := ask()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			lost++
		}
		if o := OutcomeOf(err); o == Done || o == Refused || lost == maxLost || attempt == askAttempts {
			return v, err
		}
		time.Sleep(time.Duration(attempt) * time.Millisecond)
	}
}

func addRemedy(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return &permissionError{err}
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: this kernel lacks nf_tables or a part of it: load the modules nf_tables, nft_chain_nat and nft_numgen", err)
	case errors.Is(err, unix.EMSGSIZE):
		return fmt.Errorf("%w: the socket buffer is too small for the transaction, and this process may not enlarge it: "+
			"raise net.core.wmem_max, or run with CAP_NET_ADMIN outside of user namespaces", err)
	}
	return err
}

// PermissionAdvice is the message about a missing capability, without which the
// kernel answers no question about nf_tables.
const PermissionAdvice = "permission denied: run as root, or with the capability CAP_NET_ADMIN"

type permissionError struct{ err error }

func (e *permissionError) Error() string { return PermissionAdvice }
func (e *permissionError) Unwrap() error { return e.err }

// Outcome is the meaning of an error of a question or a transaction for the caller.
type Outcome uint8

const (
	Done    Outcome = iota // there is no error
	Refused                // permanently; nothing has changed
	Busy                   // a chain or set to delete is in use, or a dump is under way; nothing has changed
	Later                  // another program was faster, or the kernel not ready; nothing has changed
	Short                  // the kernel lacks memory; nothing has changed
	Lost                   // the answer is lost; the transaction may have been committed
)

// outcomes of errors that are not final. The kernel answers EAGAIN and ERESTART
// to a batch for a stale generation or a missing module, EBUSY to the deletion of
// an object in use, and loses answers with ENOBUFS.
var outcomes = map[Outcome][]error{
	Lost:  {ErrNoAnswer, unix.ENOBUFS, unix.EINTR},
	Busy:  {unix.EBUSY},
	Short: {unix.ENOMEM},
	Later: {unix.ERESTART, ErrChanged, ErrInconsistent},
}

func OutcomeOf(err error) Outcome {
	if err == nil {
		return Done
	}
	for _, o := range []Outcome{Lost, Busy, Short, Later} {
		if slices.ContainsFunc(outcomes[o], func(e error) bool { return errors.Is(err, e) }) {
			return o
		}
	}
	if netlinkio.Fades(err) {
		return Later
	}
	return Refused
}

// contentErrors are errors of a transaction with a part that the kernel does not take,
// whenever it is sent. Others are about the moment, the sender or the memory, or not
// known to be about the content.
var contentErrors = []error{
	unix.EINVAL, unix.ERANGE, unix.E2BIG, unix.ENAMETOOLONG, unix.EOVERFLOW, unix.EDOM, // a value, or a length
	unix.EOPNOTSUPP, unix.ENOENT, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, // a feature that this kernel lacks
	unix.EEXIST, unix.ENOTEMPTY, // a key that is there already, or intervals that overlap
	unix.ELOOP, unix.EMLINK, // chains that lead too far
}

// RefusesContent reports whether the kernel refused a transaction because of its content, so
// that it will refuse the same one again. If the sender was wrong about the content of the
// kernel, errors are alike: compare the tables first.
func RefusesContent(err error) bool {
	var refused *CommitError
	if errors.As(err, &refused) && refused.Set != nil && refused.Set.Dynamic {
		return false // packets add bindings, and they expire
	}
	return OutcomeOf(err) == Refused && slices.ContainsFunc(contentErrors, func(e error) bool { return errors.Is(err, e) })
}
