package test

import (
	order "encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// initiate sends the first packet of an SCTP association, with a chunk INIT: a kernel that lacks SCTP
// sockets tracks and translates it all the same.
func initiate(from *netlab.Host, port uint16, to netip.AddrPort) error {
	be := order.BigEndian
	b := be.AppendUint16(be.AppendUint16(nil, port), to.Port())
	b = append(b, make([]byte, 8)...)                                 // no tag yet, and the checksum
	b = append(b, 1, 0, 0, 20)                                        // INIT, without flags, of 20 bytes
	b = be.AppendUint32(be.AppendUint32(b, 4711), 64<<10)             // tag, room for data
	b = be.AppendUint32(be.AppendUint16(be.AppendUint16(b, 1), 1), 1) // streams, first number
	order.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	network := "ip4:132"
	if to.Addr().Is6() {
		network = "ip6:132"
	}
	c, err := from.ListenPacket(network, from.Address(model.FamilyOf(to.Addr())).String())
	if err != nil {
		return err
	}
	_, err = c.WriteTo(b, &net.IPAddr{IP: to.Addr().AsSlice()})
	return errors.Join(err, c.Close())
}

// TestObservedSCTP: 16.2, 16.8, 17.16. Connections over SCTP are observed, also to ranges of ports: those that
// rules refuse, and those whose endpoint does not answer.
func TestObservedSCTP(t *testing.T) {
	w := newWatched(t, map[string]string{"nftproxy.dev/ports": "9000-9010/sctp"}, "--observe=connections")
	denied := service{Name: "denied", N: 5, Pods: w.Pods[:1], Annotations: listed(nil, []string{"0.0.0.0/0", "::/0"})}
	w.write(w.web, w.ending, w.dead, w.mute, denied)
	for _, f := range model.Families {
		web := w.web.clusterIP(f)
		for i, c := range []struct {
			service, reason string
			to              netip.AddrPort
			endpoint        uint16 // its port; zero: none
		}{
			{"denied", "denied", denied.clusterIP(f), 0},
			{"web", "unknown-port", netip.AddrPortFrom(web.Addr(), 9011), 0},
			{"web", model.Unanswered, web, echoPort},
			{"web", model.Unanswered, netip.AddrPortFrom(web.Addr(), 9007), 9007},
		} {
			n := 0
			eventually(t, func() error {
				if c.endpoint == 0 || n == 0 { // the rules may be late, and samples limited
					if err := initiate(w.Client, uint16(20000+i), c.to); err != nil {
						return err
					}
				}
				n++
				for _, e := range w.observed("service=default/" + c.service).Events {
					endpoint := ""
					if c.endpoint != 0 {
						endpoint = netip.AddrPortFrom(w.Pods[0].Address(f), c.endpoint).String()
					}
					if e.Protocol == "sctp" && e.Frontend == c.to.String() && e.Reason == c.reason && e.Endpoint == endpoint {
						return nil
					}
				}
				return fmt.Errorf("no event about %+v", c)
			})
		}
	}
}
