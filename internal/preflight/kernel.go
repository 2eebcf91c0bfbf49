package preflight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// conn is a netlink socket to the kernel of the calling thread's network
// namespace.
type conn struct{ nl *netlink.Conn }

func open() (*conn, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	// The kernel's explanations in words.
	if err := nl.SetOption(netlink.ExtendedAcknowledge, true); err != nil {
		return nil, errors.Join(fmt.Errorf("set netlink option: %w", err), nl.Close())
	}
	return &conn{nl}, nil
}

func (c *conn) close() error { return c.nl.Close() }

// patience is how long the kernel may take for an answer: it may have modules
// to load.
const patience = 30 * time.Second

// try implements [kernel].
func (c *conn) try(messages []netlink.Message) ([]error, error) {
	// All answers are there when the batch is sent, each with its request.
	if err := c.nl.SetReadBuffer((len(messages) + 1) << 12); err != nil {
		return nil, fmt.Errorf("set socket buffer: %w", err)
	}
	header := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}
	header = binary.BigEndian.AppendUint16(header, unix.NFNL_SUBSYS_NFTABLES)
	begin := netlink.Message{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_BEGIN, Flags: netlink.Request}, Data: header}
	sent, err := c.nl.SendMessages(append([]netlink.Message{begin}, messages...))
	if err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	if err := c.nl.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	answers := make([]error, len(messages))
	for range answers {
		sequence, err := c.receive()
		i := slices.IndexFunc(sent, func(m netlink.Message) bool { return m.Header.Sequence == sequence })
		if i <= 0 { // the whole batch, or no answer at all
			return nil, err
		}
		answers[i-1] = err
	}
	return answers, nil
}

// receive returns the next answer and the number of the message that it is to,
// which is 0 if there is no answer.
func (c *conn) receive() (sequence uint32, answer error) {
	replies, err := c.nl.Receive()
	var op *netlink.OpError
	switch {
	case errors.As(err, &op) && op.Sequence != 0:
		return op.Sequence, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, fmt.Errorf("no answer in %s: %w", patience, err)
	case err != nil:
		return 0, fmt.Errorf("receive: %w", err)
	case len(replies) != 1:
		return 0, fmt.Errorf("receive: %d answers at once", len(replies))
	}
	return replies[0].Header.Sequence, nil
}

// request implements [kernel].
func (c *conn) request(m netlink.Message) error {
	_, err := c.nl.Execute(m)
	return err
}
