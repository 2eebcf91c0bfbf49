package test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nflog"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// packetLog has the packets that rules sent to a group of NFLOG.
type packetLog struct {
	mu   sync.Mutex
	seen map[loggedPacket]bool
	sent map[loggedPacket]bool // with the addresses of the packet itself
}

type loggedPacket struct {
	reason   string
	protocol model.Protocol
	client   netip.Addr
	to       netip.AddrPort
}

// listen collects the packets of a group until the test ends.
func (c *cluster) listen(group uint16) *packetLog {
	c.t.Helper()
	l := &packetLog{seen: make(map[loggedPacket]bool), sent: make(map[loggedPacket]bool)}
	var reader *nflog.Reader
	if err := c.Node.Do(func() (err error) { reader, err = nflog.Open(group); return err }); err != nil {
		c.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for reader.Read(l.add) == nil { // until it is closed
		}
	})
	c.t.Cleanup(func() { reader.Close(); running.Wait() })
	return l
}

func (l *packetLog) add(e *nflog.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[loggedPacket{string(e.Prefix), e.Protocol, e.Client().Addr(), e.Dialled()}] = true
	l.sent[loggedPacket{string(e.Prefix), e.Protocol, e.Source.Addr(), e.Destination}] = true
}

// ends reports whether there is a message about a segment that ends a connection.
func (l *packetLog) ends(from netip.Addr, to netip.AddrPort) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent[loggedPacket{model.EndPrefix, model.TCP, from, to}]
}

// has waits for a message with a reason about a packet of one of the clients: of each frontend
// there are only samples. The node may dial an address from that address.
func (l *packetLog) has(t *testing.T, reason string, p model.Protocol, to netip.AddrPort, clients ...*netlab.Host) {
	t.Helper()
	eventually(t, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, from := range clients {
			for _, a := range []netip.Addr{from.Address(model.FamilyOf(to.Addr())), to.Addr()} {
				if l.seen[loggedPacket{reason, p, a, to}] {
					return nil
				}
			}
		}
		return fmt.Errorf("no message about %s %s %s among %d", reason, p, to, len(l.seen))
	})
}
