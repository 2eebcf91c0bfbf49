package kernel

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"golang.org/x/sys/unix"
)

// request asks a question and returns the whole answer.
func (c *Conn) request(typ uint16, flags netlink.HeaderFlags, data []byte) ([]netlink.Message, error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	replies, err := c.nl.Execute(question(typ, flags, data))
	c.note(err)
	return replies, err
}

// requestAll asks for a list that the kernel may change while it gives it: then
// it says so, and is asked again.
func (c *Conn) requestAll(typ uint16, data []byte) ([]netlink.Message, error) {
	for range askAttempts {
		replies, err := c.request(typ, netlink.Request|netlink.Dump, data)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(replies, func(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 }) {
			return replies, nil
		}
	}
	return nil, unix.EINTR
}

func question(typ uint16, flags netlink.HeaderFlags, data []byte) netlink.Message {
	return netlink.Message{Header: netlink.Header{Type: messageType(typ), Flags: flags}, Data: data}
}

// anyFamily is the header of a message that is about no family.
var anyFamily = attributes{unix.NFPROTO_UNSPEC, unix.NFNETLINK_V0, 0, 0}

func messageType(typ uint16) netlink.HeaderType {
	return netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | typ)
}

// prepare makes the socket ready for a question or a batch.
func (c *Conn) prepare() error {
	netlinkio.Renew(c.nl)
	if !c.dirty {
		return nil
	}
	return c.drain()
}

// note takes down that something of an answer may be left on the socket, where
// it would be taken for that to the next question.
func (c *Conn) note(err error) {
	c.dirty = c.dirty || err != nil && (!isAnswer(err) || errors.Is(err, unix.EBUSY))
}

// isAnswer tells whether an error is what the kernel answered; otherwise the
// socket failed.
func isAnswer(err error) bool {
	var op *netlink.OpError
	if !errors.As(err, &op) {
		return false
	}
	_, ok := op.Err.(syscall.Errno)
	return ok
}

// maxFailures is how often receiving may fail before a socket is given up for
// the moment.
const maxFailures = 3

// drain takes what is left on the socket. A dump that was broken off is still
// under way, and until its end the kernel refuses the next one (EBUSY): it goes
// on with it when something is received, so that one more question is asked.
func (c *Conn) drain() error {
	if _, err := c.nl.Send(question(unix.NFT_MSG_GETGEN, netlink.Request, anyFamily)); err != nil {
		return err
	}
	for failures := 0; ; {
		ready, err := c.readable()
		if err != nil {
			return err
		}
		if !ready {
			c.dirty = false
			return nil
		}
		netlinkio.Renew(c.nl)
		if err := c.discard(); err != nil && !isAnswer(err) {
			if failures++; failures == maxFailures {
				return err
			}
		}
	}
}

// discard receives an answer and forgets it.
func (c *Conn) discard() error {
	for _, err := range c.nl.ReceiveIter() {
		if err != nil {
			return err
		}
		netlinkio.Renew(c.nl)
	}
	return nil
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

// askAttempts is how often a question is asked while others change the ruleset,
// or while there is no memory for the answer.
const askAttempts = 20

// maxLost is how many answers may get lost before a question is given up.
const maxLost = 3

// persist asks until there is an answer, or an error that stays. Questions
// change nothing.
func persist[T any](ask func() (T, error)) (T, error) {
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
