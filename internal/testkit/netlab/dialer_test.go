package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFirstPacket: the first packet of a connection is sent, however short the wait for the answer is. Without
// an answer, the error says that the time has passed.
func TestFirstPacket(t *testing.T) {
	l := newLab(t, 0)
	nft(t, l.Node, "table inet test { chain input { type filter hook input priority 0; tcp dport 80 counter drop; }; }")
	const attempts = 10
	for range attempts {
		for _, to := range []netip.Addr{l.Node.IPv4, l.Node.IPv6} {
			_, err := l.Client.Open("tcp", netip.AddrPortFrom(to, 80), 1)
			if e := net.Error(nil); !errors.As(err, &e) || !e.Timeout() {
				t.Errorf("%s: %v, want a timeout", to, err)
			}
		}
	}
	want := fmt.Sprintf("counter packets %d ", 2*attempts)
	Eventually(t, 20*time.Second, func() error {
		out, err := l.Node.Output("nft", "list", "table", "inet", "test")
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("no %q in\n%s", want, out)
		}
		return err
	})
}

// TestSentAgain: the error has how often the first packet was sent again.
func TestSentAgain(t *testing.T) {
	l := newLab(t, 0)
	nft(t, l.Node, "table inet test { chain input { type filter hook input priority 0; tcp dport 81 limit rate 1/day burst 1 packets drop; }; }")
	for port, want := range map[uint16]uint32{80: 0, 81: 1} {
		_, err := l.Client.Open("tcp", netip.AddrPortFrom(l.Node.IPv4, port), 20*time.Second)
		if !errors.Is(err, syscall.ECONNREFUSED) || SentAgain(err) != want {
			t.Errorf("port %d: %v, sent %d times again, want %d", port, err, SentAgain(err), want)
		}
	}
}
