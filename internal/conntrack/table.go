package conntrack

import (
	"net/netip"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/fair"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// MostGroups is how many groups of entries a [Table] has before it leaves out further clients, so that forged clients
// take at most 10 MB. The kernel lists entries in the order of a hash: a client with many entries is among the first.
const MostGroups = 1 << 15

// Table is all entries of the kernel, in all zones.
type Table struct {
	Entries int
	Groups  map[Group]int // number of entries
}

// Group is what entries have in common.
type Group struct {
	Protocol model.Protocol
	// State of TCP and SCTP is the kernel's; others are answered or unanswered.
	State string
	// Client is an address, or a /64 of IPv6; the zero value: further clients.
	Client netip.Prefix
	// Port is the service port that was dialled; the zero value: none.
	Port model.PortName
}

// States of <linux/netfilter/nf_conntrack_tcp.h> and nf_conntrack_sctp.h, by number.
var states = map[model.Protocol][]string{
	model.TCP:  {"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2"},
	model.SCTP: {"NONE", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED", "ESTABLISHED", "SHUTDOWN_SENT", "SHUTDOWN_RECD", "SHUTDOWN_ACK_SENT", "HEARTBEAT_SENT"},
}

// ReadTable reads the table of the calling thread's network namespace with one dump. portOf returns the service port that
// serves a frontend. Entries that come and go meanwhile may count or not.
func ReadTable(portOf func(model.Frontend) (model.PortName, bool)) (*Table, error) {
	t := new(Table)
	err := withSocket("list connections", func(c *netlink.Conn) error {
		return netlinkio.Retry(netlinkio.Fades, func() error {
			*t = Table{Groups: make(map[Group]int)}
			return receiveDump(c, []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}, func(message []byte) {
				g, dialled := decodeGroup(message)
				g.Port, _ = portOf(dialled)
				t.add(g)
			})
		})
	})
	return t, err
}

func (t *Table) add(g Group) {
	t.Entries++
	if _, known := t.Groups[g]; !known && len(t.Groups) >= MostGroups {
		g.Client = netip.Prefix{}
	}
	t.Groups[g]++
}

// decodeGroup returns the group of an entry but for its service port, and what the client dialled.
func decodeGroup(message []byte) (g Group, dialled model.Frontend) {
	var err error
	var number uint32
	answered := false
	for a := netlinkio.ReadMessage(message, &err); a.Next(); {
		switch a.Type {
		case nl.CTA_TUPLE_ORIG:
			original := decodeTuple(a.Nested())
			g.Protocol, g.Client = original.protocol, fair.ClientOf(original.from)
			dialled = model.Frontend{Address: original.to, Protocol: original.protocol, Port: original.toPort}
		case nl.CTA_STATUS:
			answered = decodeNumber(a.Data)&seenReply != 0
		case nl.CTA_PROTOINFO:
			for p := a.Nested(); p.Next(); {
				for state := p.Nested(); state.Next(); {
					if state.Type == nl.CTA_PROTOINFO_TCP_STATE { // the number of the state of SCTP, too
						number = decodeNumber(state.Data)
					}
				}
			}
		}
	}
	switch names := states[g.Protocol]; {
	case int(number) < len(names):
		g.State = names[number]
	case answered:
		g.State = "answered"
	default:
		g.State = "unanswered"
	}
	return g, dialled
}
