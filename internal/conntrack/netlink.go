package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"golang.org/x/sys/unix"
)

// Messages of <linux/netfilter/nfnetlink_conntrack.h>.
const (
	getEntry    = netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | 1)
	deleteEntry = netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | 2)
)

const (
	// receiveBuffer is the size of a datagram's buffer in bytes. The kernel fills
	// datagrams of a dump up to 32 KiB.
	receiveBuffer = 32 << 10
	// renewal is how many messages are read before the timeout is renewed: fewer
	// than fit into a datagram.
	renewal = 64
	// batch is how many entries one system call deletes: errors for all of them,
	// about 1 KiB each, fit into the default receive buffer of a socket.
	batch = 128
)

// Netlink is the [Kernel] of the calling thread's network namespace. It needs
// CAP_NET_ADMIN. Each call opens a socket, so answers cannot be mixed up.
type Netlink struct {
	// From, if it is valid, is the address whose answers matter: List may leave out other
	// flows.
	From netip.Addr
}

func dial() (*netlink.Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{MessageBufferSize: receiveBuffer})
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	netlinkio.Renew(c)
	return c, nil
}

// List implements [Kernel] with one dump, and holds one datagram of it in memory.
func (n Netlink) List(family model.Family, p model.Protocol, f func(Flow)) error {
	return dumpEntries(func(c *netlink.Conn) error { return n.listEntries(c, family, p, flowsOf(p, f)) })
}

// ListUnanswered implements [Kernel] in the same way.
func (Netlink) ListUnanswered(family model.Family, f func(Flow)) error {
	return listByStatus(family, encodeUnanswered(), f)
}

// listByStatus lists the flows of a family of all protocols that a request is for.
func listByStatus(family model.Family, request []byte, f func(Flow)) error {
	return dumpEntries(func(c *netlink.Conn) error {
		return receiveDump(c, append(messageHeader(family), request...), func(message []byte) {
			if flow, ok := decode(message); ok {
				f(flow)
			}
		})
	})
}

// dumpEntries lists with a socket of its own.
func dumpEntries(list func(*netlink.Conn) error) error {
	c, err := dial()
	if err != nil {
		return err
	}
	if err := list(c); err != nil {
		return errors.Join(fmt.Errorf("list connections: %w", addRemedy(err)), c.Close())
	}
	return c.Close()
}

// flowsOf decodes messages and calls f with the flows of a protocol.
func flowsOf(p model.Protocol, f func(Flow)) func(message []byte) {
	return func(message []byte) {
		if flow, ok := decode(message); ok && flow.Protocol == p {
			f(flow)
		}
	}
}

// listEntries calls f with the messages of a dump of the entries of a protocol.
func (n Netlink) listEntries(c *netlink.Conn, family model.Family, p model.Protocol, f func([]byte)) error {
	return receiveDump(c, append(messageHeader(family), encodeFilter(p, n.From)...), f)
}

// receiveDump calls f with the messages of a dump.
func receiveDump(c *netlink.Conn, request []byte, f func([]byte)) error {
	if _, err := c.Send(netlink.Message{Header: netlink.Header{Type: getEntry, Flags: netlink.Request | netlink.Dump}, Data: request}); err != nil {
		return err
	}
	interrupted := false
	netlinkio.Renew(c) // the kernel may have searched millions of entries
	messages := 0
	for m, err := range c.ReceiveIter() {
		if err != nil {
			return err
		}
		if messages++; messages%renewal == 0 {
			netlinkio.Renew(c)
		}
		interrupted = interrupted || m.Header.Flags&netlink.DumpInterrupted != 0
		f(m.Data)
	}
	if interrupted {
		return unix.EINTR
	}
	return nil
}

// Delete implements [Kernel] with a system call for every batch.
func (Netlink) Delete(flows []Flow) (deleted int, err error) {
	if len(flows) == 0 {
		return 0, nil
	}
	c, err := dial()
	if err != nil {
		return 0, err
	}
	for some := range slices.Chunk(flows, batch) {
		var n int
		n, err = deleteFlows(c, some)
		deleted += n
		if err != nil {
			err = fmt.Errorf("delete connections: %w", addRemedy(err))
			break
		}
	}
	return deleted, errors.Join(err, c.Close())
}

// deleteFlows deletes a batch of flows.
func deleteFlows(c *netlink.Conn, flows []Flow) (deleted int, err error) {
	sent, err := c.SendMessages(encodeDeletions(flows))
	if err != nil {
		return 0, err
	}
	refused, err := receiveRefusals(c, sent)
	if err != nil {
		return 0, err
	}
	for _, r := range refused {
		if !errors.Is(r, unix.ENOENT) {
			return len(flows) - len(refused), r
		}
	}
	return len(flows) - len(refused), nil
}

// receiveRefusals receives the answers to messages, of which the last one asks for one: the
// kernel answers every refused message, and that one always.
func receiveRefusals(c *netlink.Conn, sent []netlink.Message) (refused []*netlink.OpError, err error) {
	for last := sent[len(sent)-1].Header.Sequence; ; {
		netlinkio.Renew(c)
		_, err := c.Receive()
		var answer *netlink.OpError
		switch {
		case err == nil: // to the last one
			return refused, nil
		case !errors.As(err, &answer) || answer.Sequence == 0: // the socket failed
			return nil, err
		}
		if refused = append(refused, answer); answer.Sequence == last {
			return refused, nil
		}
	}
}

func encodeDeletions(flows []Flow) []netlink.Message {
	messages := make([]netlink.Message, len(flows))
	for i := range flows {
		messages[i] = netlink.Message{
			Header: netlink.Header{Type: deleteEntry, Flags: netlink.Request},
			Data:   append(messageHeader(model.FamilyOf(flows[i].Dialled.Addr())), flows[i].encode()...),
		}
	}
	messages[len(messages)-1].Header.Flags |= netlink.Acknowledge
	return messages
}

func addRemedy(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: connection tracking needs the capability CAP_NET_ADMIN: run as root", err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: this kernel cannot list connections: load the module nf_conntrack_netlink", err)
	}
	return err
}
