package host

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestAnnounce: 10.33. A neighbour that knew the address at another machine uses this one at once, in
// both families; what is done already is no change.
func TestAnnounce(t *testing.T) {
	lab := netlab.TestLab(t, 0)
	link := strings.TrimSpace(output(t, lab.Node, "ip -o route get "+lab.Client.IPv4.String()+" | sed 's/.* dev \\([^ ]*\\).*/\\1/'"))
	from := strings.TrimSpace(output(t, lab.Client, "ip -o route get "+lab.Node.IPv4.String()+" | sed 's/.* dev \\([^ ]*\\).*/\\1/'"))
	mac := strings.TrimSpace(output(t, lab.Node, "ip -o link show dev "+link+" | sed 's/.*link.ether \\([^ ]*\\).*/\\1/'"))
	for _, text := range []string{"203.0.113.10", "2001:db8:9::10"} {
		a := netip.MustParseAddr(text)
		lab.Client.TestScript(t, `ip route replace "$1/$3" dev "$2"; ip neigh replace "$1" lladdr 02:00:00:00:00:99 dev "$2" nud reachable`, text, from, fmt.Sprint(a.BitLen()))
		do := func(f func(string, netip.Addr) (bool, error), want bool) {
			t.Helper()
			err := lab.Node.Do(func() error {
				changed, err := f(link, a)
				if changed != want {
					err = errors.Join(err, fmt.Errorf("%s: changed %v, want %v", a, changed, want))
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		do(Announce, true)
		do(Announce, false)
		netlab.Eventually(t, 20*time.Second, func() error {
			if knows := output(t, lab.Client, "ip neigh show to "+text); !strings.Contains(knows, mac) {
				return fmt.Errorf("the client knows %q, want %s", knows, mac)
			}
			return nil
		})
		if err := lab.Client.Ping(a, 5*time.Second); err != nil {
			t.Error(err)
		}
		do(Withdraw, true)
		do(Withdraw, false)
	}
	if _, err := Announce("no-such-link", netip.MustParseAddr("203.0.113.10")); err == nil || !strings.Contains(err.Error(), "no-such-link") {
		t.Errorf("an interface that is not there: %v", err)
	}
}

func output(t *testing.T, h *netlab.Host, script string) string {
	t.Helper()
	out, err := h.Output("sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
