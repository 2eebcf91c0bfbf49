package test

import (
	bigendian "encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// sendRaw sends IP packets with headers of their own, over IPv4.
func sendRaw(h *netlab.Host, packets ...[]byte) error {
	return h.Do(func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		for _, p := range packets {
			if err := unix.Sendto(s, p, 0, &unix.SockaddrInet4{Addr: [4]byte(p[16:20])}); err != nil {
				return err
			}
		}
		return nil
	})
}

// expiring returns a packet of IPv4 whose time to live ends at the first router.
func expiring(packet []byte) []byte {
	packet[8], packet[10], packet[11] = 1, 0, 0
	bigendian.BigEndian.PutUint16(packet[10:], checksum(packet[:20]))
	return packet
}

// TestPassiveUnderAttack: 3.66, 17.12. One client opens connections that fail at healthy servers, by its own address or by forged
// ones: no server is left out, connections of other clients are not reset, and status does not blame the servers for one client.
func TestPassiveUnderAttack(t *testing.T) {
	w := newWard(t, 3)
	w.flags = slices.Concat(clusterCIDR, []string{"--observe=failures", "--observe-group=9"})
	attacker := w.Pods[2]
	web := service{Name: "web", N: 1, Pods: w.Pods[:2], Annotations: map[string]string{
		"nftproxy.dev/health-check": "{passive: 2 of 3, interval: 1s}", "nftproxy.dev/on-failure": "close"}}
	w.write(web)
	d := w.start()
	w.page("/metrics", "\nnftproxy_observe_up 1\n")
	w.answered(web, web.Pods...)
	innocent := w.connections(web)
	to := web.clusterIP(model.IPv4)
	attacks := []struct {
		name, outcome, status string
		packet                func(n int) []byte
	}{
		{"a signature", "unanswered", "only one client fails: ", func(n int) []byte {
			return signedSegment(netip.AddrPortFrom(attacker.IPv4, uint16(20000+n)), to)
		}},
		{"the time to live", "dropped", "only one client fails: ", func(n int) []byte {
			return expiring(firstPacket(model.TCP, netip.AddrPortFrom(attacker.IPv4, uint16(30000+n)), to))
		}},
		{"forged addresses", "unanswered", "", func(n int) []byte {
			return signedSegment(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 128, 77, byte(n)}), uint16(4711+n)), to)
		}},
	}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			begin, n := w.sampled("web", a.outcome), 0
			eventually(t, func() error {
				if err := sendRaw(attacker, a.packet(n), a.packet(n+1)); err != nil {
					t.Fatal(err)
				}
				n += 2
				if got := w.sampled("web", a.outcome) - begin; got < 20 {
					return fmt.Errorf("%d sampled connections are %s", got, a.outcome)
				}
				return nil
			})
			w.has([]string{"status"}, a.status)
			for _, f := range innocent {
				f.goesOn(t, "beside the attack")
			}
			w.answered(web, web.Pods...)
		})
	}
	w.page("/metrics", "\nnftproxy_health_checks_total{result=\"pass\",type=\"passive\"} ")
	if log := d.log.String(); strings.Contains(log, "endpoint fails its health check") {
		t.Errorf("a server was left out:\n%s", log)
	}
	d.stop(t)
}
