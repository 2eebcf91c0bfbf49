package netlab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// ICMP types of echo requests and of replies to them.
var (
	echoRequest = map[model.Family]byte{model.IPv4: 8, model.IPv6: 128}
	echoReply   = map[model.Family]byte{model.IPv4: 0, model.IPv6: 129}
	pingNetwork = map[model.Family]string{model.IPv4: "ip4:icmp", model.IPv6: "ip6:ipv6-icmp"}
)

// Ping sends one ICMP echo request and waits for its reply. Port unreachable is
// the error ECONNREFUSED.
func (h *Host) Ping(to netip.Addr, wait time.Duration) error { return h.PingSize(to, wait, 0) }

// PingSize does so with this many bytes of data.
func (h *Host) PingSize(to netip.Addr, wait time.Duration, size int) error {
	return h.ping(to, wait, uint16(h.port.Add(1)), size)
}

// PingID does so with an identifier: all such requests are one flow.
func (h *Host) PingID(to netip.Addr, wait time.Duration, id uint16) error {
	return h.ping(to, wait, id, 0)
}

func (h *Host) ping(to netip.Addr, wait time.Duration, id uint16, size int) error {
	family := model.FamilyOf(to)
	var d net.Dialer
	if h.alias {
		d.LocalAddr = &net.IPAddr{IP: h.Address(family).AsSlice()}
	}
	c, err := h.dial(context.Background(), d, pingNetwork[family], to.String())
	if err != nil {
		return fmt.Errorf("ping %s: %w", to, err)
	}
	defer c.Close()
	if err := errors.Join(send(c, echoMessage(family, id, size)), c.SetReadDeadline(time.Now().Add(wait))); err != nil {
		return fmt.Errorf("ping %s: %w", to, err)
	}
	for buf := make([]byte, 64<<10); ; {
		// ReadFrom leaves the IPv4 header out, Read does not.
		n, _, err := c.(*net.IPConn).ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("ping %s: %w", to, err)
		}
		if n == 8+size && buf[0] == echoReply[family] && binary.BigEndian.Uint16(buf[4:]) == id {
			return nil
		}
	}
}

// echoMessage returns an ICMP message. Its checksum is right for ICMP over IPv4;
// the kernel overwrites the one of ICMPv6, which covers addresses.
func echoMessage(f model.Family, id uint16, size int) []byte {
	m := binary.BigEndian.AppendUint16([]byte{echoRequest[f], 0, 0, 0}, id)
	m = append(m, 0, 1)
	m = append(m, make([]byte, size)...) // an even number
	var sum uint32
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
	return m
}
