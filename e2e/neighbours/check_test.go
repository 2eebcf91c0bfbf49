package neighbours

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/machine"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// check compares what "nftproxy check" says about the filters that forwarded packets pass
// with what they do: a [machine.Problem] if pods are not reached.
func (h *host) check(when string, want machine.Level) {
	h.t.Helper()
	err := h.Node.Do(func() error {
		use := machine.Use{Cluster: true, PodRanges: []netip.Prefix{netlab.ClusterCIDRv4, netlab.ClusterCIDRv6}}
		for _, f := range machine.Check(machine.Read(), use) { // problems first
			if f.Check == "forward-filter" {
				if f.Level != want {
					h.t.Errorf("%s: %s: %s, want %s", when, f.Level, f.Message, want)
				}
				return nil
			}
		}
		h.t.Errorf("%s: the filters were not checked", when)
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}
