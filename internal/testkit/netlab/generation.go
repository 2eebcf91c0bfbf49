package netlab

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Generation returns a number that every nftables transaction in the namespace
// increments, whether it changes something or not.
func (n *Namespace) Generation() (generation uint32, err error) {
	if err := n.Do(func() error { generation, err = ownGeneration(); return err }); err != nil {
		return 0, fmt.Errorf("read nftables generation: %w", err)
	}
	return generation, nil
}

// ownGeneration asks the kernel itself: the tests of package kernel, which can ask as well, use this package.
func ownGeneration() (generation uint32, err error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return 0, err
	}
	answers, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err := errors.Join(err, c.Close()); err != nil {
		return 0, err
	}
	for _, answer := range answers {
		a := netlinkio.ReadMessage(answer.Data, &err)
		for a.Next() {
			if a.Type == unix.NFTA_GEN_ID {
				return a.Uint32(), nil
			}
		}
	}
	return 0, errors.Join(err, errors.New("the answer has none"))
}
