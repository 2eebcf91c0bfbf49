package fastpath

import (
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestSubscriptionEnds: a stream whose changes are not read ends completely.
func TestSubscriptionEnds(t *testing.T) {
	ns := netlab.TestNamespace(t)
	err := ns.Do(func() error {
		s, err := netlinkio.SubscribeToLinks(t.Context())
		if err != nil {
			return err
		}
		for i := range 3 {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = fmt.Sprintf("d%d", i)
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: attrs.Name + "p"}); err != nil {
				return err
			}
		}
		s.Close()
		if _, more := <-s.Updates; more {
			t.Error("it still has changes")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
