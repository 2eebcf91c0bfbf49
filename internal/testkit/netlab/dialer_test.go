package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
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
