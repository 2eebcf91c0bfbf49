package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Connection identifies an entry in the default zone by the first packet of its connection. It
// is comparable.
type Connection struct {
	Protocol        model.Protocol // one with ports
	Client, Dialled netip.AddrPort
}

// Outcome is what the entry of a TCP connection says about its endpoint, some seconds after
// the first packet.
type Outcome uint8

const (
	Answered Outcome = iota
	// Refused is a connection without an entry: the kernel removes one whose only answer is a
	// reset (nf_conntrack_tcp_packet, all kernels up to 6.18). Entries of connections that
	// have ended stay for 10 seconds and more.
	Refused
	Unanswered // the client still waits for the first answer, or has given up
)

// Outcomes are all of them.
const Outcomes = 3

func (o Outcome) String() string { return [Outcomes]string{"answered", "refused", "unanswered"}[o] }

// OutcomesOf returns the outcomes of TCP connections, each with one request to the kernel. An
// entry that another program has deleted counts as refused.
func (Netlink) OutcomesOf(connections []Connection) ([]Outcome, error) {
	c, err := dial()
	if err != nil {
		return nil, err
	}
	out := make([]Outcome, len(connections))
	for i := range connections {
		if out[i], err = outcomeOf(c, &connections[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("look up connection: %w", explain(err)), c.Close())
		}
	}
	return out, c.Close()
}

func outcomeOf(c *netlink.Conn, of *Connection) (Outcome, error) {
	netlinkio.Renew(c)
	answers, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: getEntry, Flags: netlink.Request},
		Data:   append(header(model.FamilyOf(of.Dialled.Addr())), of.encode()...),
	})
	if errors.Is(err, unix.ENOENT) {
		return Refused, nil
	}
	if err != nil {
		return 0, err
	}
	for _, m := range answers {
		if flow, ok := decode(m.Data); ok && flow.Opening {
			return Unanswered, nil
		}
	}
	return Answered, nil
}
