package fastpath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netspace"
)

// space is a network namespace without a name, which ends with its file descriptor and its
// sockets.
type space struct {
	*netspace.Space
	links *netlink.Handle
}

func newSpace() (*space, error) {
	in, err := netspace.Open()
	if err != nil {
		return nil, err
	}
	links, err := netlink.NewHandleAt(netns.NsHandle(in.Handle()), unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a socket in a network namespace: %w", err), in.Close())
	}
	return &space{in, links}, nil
}

// configure gives a device addresses with these numbers, and turns it on.
func (s *space) configure(device string, families []model.Family, nets map[model.Family]netip.Prefix, numbers ...int) error {
	l, err := s.links.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find network device %s: %w", device, err)
	}
	for _, f := range families {
		bits := nets[f].Addr().BitLen()
		for _, n := range numbers {
			a := &netlink.Addr{IPNet: &net.IPNet{IP: host(nets[f], n).AsSlice(), Mask: net.CIDRMask(nets[f].Bits(), bits)}}
			if f == model.IPv6 {
				a.Flags = unix.IFA_F_NODAD // usable at once
			}
			if err := s.links.AddrAdd(l, a); err != nil {
				return fmt.Errorf("add address %s: %w", a, err)
			}
		}
	}
	if err := s.links.LinkSetUp(l); err != nil {
		return fmt.Errorf("turn network device %s on: %w", device, err)
	}
	return nil
}

func (s *space) close() error {
	s.links.Close()
	return s.Close()
}
