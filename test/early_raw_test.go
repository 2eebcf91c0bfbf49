package test

import (
	encoding "encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// initChunk returns the first packet of an association of SCTP, without a header of IP. Its tag tells it from others.
func initChunk(from, to uint16, tag uint32) []byte {
	const headers, chunk, kind = 12, 20, 1
	p := make([]byte, headers+chunk)
	encoding.BigEndian.PutUint16(p, from)
	encoding.BigEndian.PutUint16(p[2:], to)
	p[headers], p[headers+3] = kind, chunk
	encoding.BigEndian.PutUint32(p[headers+4:], tag)
	encoding.BigEndian.PutUint32(p[headers+8:], 1<<16)
	p[headers+13], p[headers+15] = 1, 1 // streams
	encoding.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return p
}

// rawSCTP is the network of raw sockets: this kernel may have no sockets of SCTP.
var rawSCTP = map[model.Family]string{model.IPv4: "ip4:132", model.IPv6: "ip6:132"}

// tags are the tags of first packets of associations that have arrived at a host.
type tags struct {
	mu   sync.Mutex
	seen map[uint32]bool
}

func (t *tags) has(tag uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[tag]
}

// receiveSCTP notes such packets until the test ends.
func (c *cluster) receiveSCTP(h *netlab.Host) *tags {
	c.t.Helper()
	out := &tags{seen: make(map[uint32]bool)}
	for _, f := range model.Families {
		l, err := h.ListenPacket(rawSCTP[f], h.Address(f).String())
		if err != nil {
			c.t.Fatal(err)
		}
		var reading sync.WaitGroup
		reading.Go(func() {
			var buf [1500]byte
			for {
				n, _, err := l.ReadFrom(buf[:])
				if err != nil { // closed
					return
				}
				if n >= 20 {
					out.mu.Lock()
					out.seen[encoding.BigEndian.Uint32(buf[16:])] = true
					out.mu.Unlock()
				}
			}
		})
		c.t.Cleanup(func() {
			l.Close()
			reading.Wait()
		})
	}
	return out
}

// sendSCTP sends the first packet of an association.
func sendSCTP(from *netlab.Host, to netip.AddrPort, port uint16, tag uint32) error {
	return from.Do(func() error {
		conn, err := net.Dial(rawSCTP[model.FamilyOf(to.Addr())], to.Addr().String())
		if err != nil {
			return err
		}
		_, err = conn.Write(initChunk(port, to.Port(), tag))
		return errors.Join(err, conn.Close())
	})
}

// TestAssociationsAndPingsBeforeTheirFrontend: 9.41. The first packet of an association and an echo request, sent again
// after their frontend has come, reach it, although the node tracks them since before.
func TestAssociationsAndPingsBeforeTheirFrontend(t *testing.T) {
	const port, id = 4000, 77
	c := newCluster(t, 2)
	c.flags = append(c.flags[:2:2], "--answer-ping")
	arrived := c.receiveSCTP(c.Pods[0])
	balance := func(name string, v4, v6 netip.Addr) string {
		return fmt.Sprintf("kind: Balance\nname: %s\nlisten: ['%s:80', '[%s]:80']\nprotocol: tcp,sctp\nbackends: ['%s', '%s']\n",
			name, v4, v6, endpointOf(c.Pods[0], model.IPv4), endpointOf(c.Pods[0], model.IPv6))
	}
	elsewhere := netip.MustParseAddr("203.0.113.9")
	other := balance("other", elsewhere, netip.MustParseAddr("2001:db8:113::9"))
	if err := os.WriteFile(c.file, []byte(other), 0o644); err != nil {
		t.Fatal(err)
	}
	c.start()
	eventually(t, func() error {
		_, err := c.Client.Ask("tcp", netip.AddrPortFrom(elsewhere, 80), silence)
		return err
	})
	for _, f := range []string{"net.netfilter.nf_conntrack_sctp_timeout_cookie_wait", "net.netfilter.nf_conntrack_icmp_timeout", "net.netfilter.nf_conntrack_icmpv6_timeout"} {
		c.set(f, "600")
	}
	type client struct {
		*netlab.Host
		to  netip.AddrPort
		tag uint32
	}
	var clients []client
	for i, h := range []*netlab.Host{c.Client, c.Node, c.Pods[1]} {
		for j, f := range model.Families {
			clients = append(clients, client{h, netip.AddrPortFrom(vip[f], 80), uint32(10*i + j + 1)})
		}
	}
	for _, k := range clients {
		if err := sendSCTP(k.Host, k.to, port, k.tag); err != nil {
			t.Fatal(err)
		}
		if err := k.PingID(k.to.Addr(), silence, id); err == nil {
			t.Errorf("%s: a reply from %s", k.Name, k.to)
		}
	}
	eventually(t, func() error { return c.countUnanswered(len(clients)) })
	if err := os.WriteFile(c.file+".new", []byte(strings.Join([]string{other, balance("web", vip[model.IPv4], vip[model.IPv6])}, "---\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		t.Fatal(err)
	}
	for _, k := range clients {
		eventually(t, func() error {
			if err := sendSCTP(k.Host, k.to, port, k.tag); err != nil {
				return err
			}
			if !arrived.has(k.tag) {
				return fmt.Errorf("the association of %s to %s has not arrived", k.Name, k.to)
			}
			return k.PingID(k.to.Addr(), silence, id)
		})
	}
}

// countUnanswered checks that the node tracks so many associations and echo requests without an answer to the address.
func (c *cluster) countUnanswered(want int) error {
	associations, requests := 0, 0
	err := c.Node.Do(func() error {
		for _, family := range model.Families {
			err := conntrack.Netlink{}.ListUnanswered(family, func(f conntrack.Flow) {
				switch {
				case f.Dialled.Addr() != vip[family]:
				case f.Protocol == model.SCTP:
					associations++
				case f.Protocol.IsEcho():
					requests++
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && (associations != want || requests != want) {
		err = fmt.Errorf("%d associations and %d echo requests are tracked, want %d", associations, requests, want)
	}
	return err
}
