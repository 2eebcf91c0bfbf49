package fastpath

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
)

// space is a network namespace without a name, which ends with its file descriptor and its
// sockets.
type space struct {
	handle netns.NsHandle
	links  *netlink.Handle
}

func newSpace() (s *space, err error) {
	s = &space{handle: netns.None()}
	err = onThread(func() (err error) {
		s.handle, err = netns.New()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	if s.links, err = netlink.NewHandleAt(s.handle, unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER); err != nil {
		return nil, fmt.Errorf("open a socket in a network namespace: %w", err)
	}
	return s, nil
}

// do runs a function in the namespace. Sockets that it makes stay there.
func (s *space) do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(s.handle); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return f()
	})
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
	return s.handle.Close()
}

// onThread runs f on a thread that ends with it, and waits for it.
func onThread(f func() error) (err error) {
	done := make(chan struct{})
	onOwnThread(func() {
		defer close(done)
		err = f()
	})
	<-done
	return err
}

// onOwnThread runs f in a new goroutine on a thread that ends with it, so that no other
// goroutine ever runs in the namespace that f enters. The main thread is passed over: it
// cannot end, and its namespace is the one of /proc/self.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		moved := make(chan struct{})
		onOwnThread(func() {
			close(moved)
			f()
		})
		<-moved
		runtime.UnlockOSThread()
	}()
}
