package kernel

import (
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/bytecode"
	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// ReadAll returns the rules of all programs that see packets of IP, as bytecode. What packets have
// left in dynamic sets is not part of them.
func (c *Conn) ReadAll() (*bytecode.Ruleset, error) {
	return Consistent(c, "the rules of all programs", func() (*bytecode.Ruleset, error) {
		all := &bytecode.Ruleset{}
		for _, list := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETSET, unix.NFT_MSG_GETRULE} {
			replies, err := c.requestAll(list, anyFamily)
			if err != nil {
				return nil, err
			}
			for _, m := range replies {
				if err := c.addTo(all, m); err != nil {
					return nil, err
				}
			}
		}
		return all, nil
	})
}

// addTo adds an object of a listing, and the elements of a set.
func (c *Conn) addTo(all *bytecode.Ruleset, m netlink.Message) error {
	typ := uint16(m.Header.Type) & 0xff
	if err := all.Change(bytecode.Message{Type: typ, Data: m.Data}); err != nil || typ != unix.NFT_MSG_NEWSET || !bytecode.IsIP(m.Data) {
		return err
	}
	a, flags, err := codec.Attributes{m.Data[0], unix.NFNETLINK_V0, 0, 0}, uint32(0), error(nil)
	for set := netlinkio.ReadMessage(m.Data, &err); set.Next(); {
		switch set.Type {
		case unix.NFTA_SET_TABLE:
			a.Text(unix.NFTA_SET_ELEM_LIST_TABLE, string(set.Text()))
		case unix.NFTA_SET_NAME:
			a.Text(unix.NFTA_SET_ELEM_LIST_SET, string(set.Text()))
		case unix.NFTA_SET_FLAGS:
			flags = set.Uint32()
		}
	}
	if err != nil || flags&unix.NFT_SET_EVAL != 0 {
		return err
	}
	replies, err := c.requestAll(unix.NFT_MSG_GETSETELEM, a)
	for i := 0; err == nil && i < len(replies); i++ {
		err = all.Change(bytecode.Message{Type: unix.NFT_MSG_NEWSETELEM, Data: replies[i].Data})
	}
	return err
}
