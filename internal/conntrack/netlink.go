package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Messages about entries.
const (
	newEntry    = netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_NEW)
	getEntry    = netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_GET)
	deleteEntry = netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | nl.IPCTNL_MSG_CT_DELETE)
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

// withSocket calls do with a socket of its own. what is for its error.
func withSocket(what string, do func(*netlink.Conn) error) error {
	c, err := dial()
	if err != nil {
		return err
	}
	if err = do(c); err != nil {
		err = fmt.Errorf("%s: %w", what, addRemedy(err))
	}
	return errors.Join(err, c.Close())
}

func newRequest(kind netlink.HeaderType, flags netlink.HeaderFlags, at netip.AddrPort, data []byte) netlink.Message {
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | flags}, Data: append(messageHeader(model.FamilyOf(at.Addr())), data...)}
}

// List implements [Kernel] with one dump, and holds one datagram of it in memory.
func (n Netlink) List(family model.Family, p model.Protocol, f func(Flow)) error {
	return listFlows(family, encodeFilter(p, n.From), func(flow Flow) {
		if flow.Protocol == p {
			f(flow)
		}
	})
}

// ListUnanswered implements [Kernel] in the same way.
func (Netlink) ListUnanswered(family model.Family, f func(Flow)) error {
	return listFlows(family, encodeStatus(0, seenReply|translatesDst), f)
}

// ListMasqueraded calls f for the flows of a family with another source and destination behind
// the translation. It may call it for others, too.
func (Netlink) ListMasqueraded(family model.Family, f func(Flow)) error {
	return listFlows(family, encodeStatus(translatesSrc|translatesDst, translatesSrc|translatesDst), f)
}

// listFlows lists the flows of a family that a request is for, and perhaps others.
func listFlows(family model.Family, request []byte, f func(Flow)) error {
	return withSocket("list connections", func(c *netlink.Conn) error {
		return receiveDump(c, append(messageHeader(family), request...), eachFlow(f))
	})
}

func eachFlow(f func(Flow)) func(message []byte) {
	return func(message []byte) {
		if flow, ok := decode(message); ok {
			f(flow)
		}
	}
}

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
	err = withSocket("delete connections", func(c *netlink.Conn) error {
		for some := range slices.Chunk(flows, batch) {
			n, err := deleteFlows(c, some)
			if deleted += n; err != nil {
				return err
			}
		}
		return nil
	})
	return deleted, err
}

func deleteFlows(c *netlink.Conn, flows []Flow) (deleted int, err error) {
	messages := make([]netlink.Message, len(flows))
	for i := range flows {
		messages[i] = newRequest(deleteEntry, 0, flows[i].Dialled, flows[i].encode())
	}
	_, refused, err := sendAll(c, messages)
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

// sendAll sends messages, of which the last one asks for an answer, and returns them with their numbers. The kernel
// answers every refused message, and the last one always.
func sendAll(c *netlink.Conn, messages []netlink.Message) (sent []netlink.Message, refused []*netlink.OpError, err error) {
	messages[len(messages)-1].Header.Flags |= netlink.Acknowledge
	if sent, err = c.SendMessages(messages); err != nil {
		return nil, nil, err
	}
	for last := sent[len(sent)-1].Header.Sequence; ; {
		netlinkio.Renew(c)
		_, err := c.Receive()
		var answer *netlink.OpError
		switch {
		case err == nil: // to the last one
			return sent, refused, nil
		case !errors.As(err, &answer) || answer.Sequence == 0: // the socket failed
			return nil, nil, err
		}
		if refused = append(refused, answer); answer.Sequence == last {
			return sent, refused, nil
		}
	}
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
