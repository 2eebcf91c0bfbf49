package dial

import (
	"fmt"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestRoomOfAnother: an interface of the same name, as of a test in a container with the same process
// number, stays.
func TestRoomOfAnother(t *testing.T) {
	ns := netlab.TestNamespace(t)
	err := ns.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = fmt.Sprintf("nftest%d", os.Getpid())
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer"}); err != nil {
			return err
		}
		if r, err := OpenRoom([]model.Family{model.IPv4}, nil, nil); err == nil {
			t.Errorf("a room with %s is there twice", attrs.Name)
			return r.Close()
		}
		_, err := netlink.LinkByName(attrs.Name)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
