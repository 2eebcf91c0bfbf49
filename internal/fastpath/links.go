package fastpath

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// subscription is a stream of the network devices that come, change and go.
type subscription = netlinkio.Subscription[netlink.LinkUpdate]

// hooks are the devices of a flow table.
type hooks struct {
	table *table
	// names by the index of a device. A device that the kernel refuses is there, too.
	names    map[int]string
	accepted int // devices that the kernel has added
	gone     int // devices that have vanished since the names of the flow table were counted
}

// usable reports whether packets arrive at a device that may go past the rules. Devices of
// pods are made here and move to their pods: only when one is up it stays.
func usable(flags uint32) bool { return flags&unix.IFF_UP != 0 && flags&unix.IFF_LOOPBACK == 0 }

// all adds all devices that there are, with one change if none of them vanishes meanwhile.
func (h *hooks) all() error {
	links, err := netlinkio.List(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list network devices: %w", err)
	}
	h.names = make(map[int]string)
	var names []string
	for _, l := range links {
		if a := l.Attrs(); usable(a.RawFlags) {
			h.names[a.Index] = a.Name
			names = append(names, a.Name)
		}
	}
	if h.accepted = 0; h.table.hook(names...) == nil {
		h.accepted = len(names)
		return nil
	}
	for _, name := range names {
		if err := h.add(name); err != nil {
			return err
		}
	}
	if h.accepted == 0 && h.table.flags&nftables.FlowtableFlagsHWOffload != 0 {
		return fmt.Errorf("%w, of %d: use --fast-path=all", errNoHardware, len(names))
	}
	return nil
}

var errNoHardware = errors.New("no network device offers hardware offload")

// add adds a device, unless it is gone, or of a kind that has no place in a flow table.
func (h *hooks) add(name string) error {
	err := h.table.hook(name)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP):
		return nil
	case err != nil:
		return fmt.Errorf("add network device %s: %w", name, err)
	}
	h.accepted++
	return nil
}

// event follows a change of a device.
func (h *hooks) event(u *netlink.LinkUpdate) error {
	switch index := int(u.Index); {
	case u.Family == unix.AF_BRIDGE: // about a port of a bridge, which stays a device
	case u.Header.Type == unix.RTM_DELLINK:
		if _, known := h.names[index]; known {
			delete(h.names, index)
			return h.vanished()
		}
	case usable(u.Flags):
		if _, known := h.names[index]; !known {
			h.names[index] = u.Attrs().Name
			return h.add(u.Attrs().Name)
		}
	}
	return nil
}

// mostGone is how many devices may vanish until the names of the flow table are counted.
const mostGone = 1000

// vanished counts a device that is gone. The kernel takes it out of the flow table; since 6.16
// the name stays, for a device that may come back. Before the names of pods that are gone fill
// it, the flow table is made again.
func (h *hooks) vanished() error {
	if h.gone++; h.gone < mostGone {
		return nil
	}
	h.gone = 0
	n, err := h.table.hooked()
	if err != nil {
		return fmt.Errorf("count the devices of the flow table: %w", err)
	}
	if n < len(h.names)+mostGone {
		return nil
	}
	return h.restart()
}

// change brings the frontends up to date.
func (h *hooks) change(c changes) error {
	if err := h.table.change(c.remove, c.add); err != nil || !c.left {
		return err
	}
	return h.restart()
}

// restart returns all connections to the rules, from where they come back.
func (h *hooks) restart() error {
	if err := h.table.restart(); err != nil {
		return err
	}
	return h.all()
}
