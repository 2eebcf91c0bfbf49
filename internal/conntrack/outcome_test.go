package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestOutcomes: 17.11. What the kernel says about connections with an answer, without one, and
// without an entry, one after the other over one socket.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	for _, to := range [][2]string{{"10.96.0.1:80", "10.0.0.1:8080"}, {"[fd00::1]:80", "[fd00::2]:8080"}} {
		flows := clients(3, model.TCP, to[0], to[1])
		flows[1].Opening = true
		x.add(zone{}, flows[:2]...)
		var connections []Connection
		for _, f := range flows {
			connections = append(connections, Connection{model.TCP, netip.AddrPortFrom(f.Client, f.Returns.Port()), f.Dialled})
		}
		x.do(func() error {
			got, err := Netlink{}.OutcomesOf(connections)
			if want := []Outcome{Answered, Unanswered, Refused}; !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", to[0], got, want)
			}
			return err
		})
	}
}
