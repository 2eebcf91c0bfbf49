package simulation

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/feature/vitals"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Links are the interfaces of the machine with their addresses, which outlive processes.
type Links struct {
	mu        sync.Mutex
	links     map[string]host.Link
	on        map[model.InterfaceAddress]host.LinkAddress
	index     int
	heard     map[model.InterfaceAddress]bool // announced since the interface has come up
	crashes   bool                            // the process ends in the middle of its next changes of addresses
	followers map[*neighbourhood]func()
}

// NewLinks returns interfaces of these names.
func NewLinks(names ...string) *Links {
	l := &Links{links: make(map[string]host.Link), on: make(map[model.InterfaceAddress]host.LinkAddress), heard: make(map[model.InterfaceAddress]bool), followers: make(map[*neighbourhood]func())}
	for _, name := range names {
		l.index++
		l.links[name] = host.Link{Index: l.index, Up: true, Shared: true}
	}
	return l
}

// Of returns the interfaces for a process, which no longer changes them when it has ended. cut is set when it ends in
// the middle of its changes of addresses.
func (l *Links) Of(ended func() bool, cut *atomic.Bool) vitals.Links {
	return &neighbourhood{l, ended, cut}
}

// neighbourhood is the interfaces as one process uses them.
type neighbourhood struct {
	*Links
	ended func() bool
	// cut means that the process has ended in the middle of its changes of addresses: since they come in any
	// order, the last byte of an address decides whether it was changed before.
	cut *atomic.Bool
}

// List implements [vitals.Links].
func (n *neighbourhood) List() (map[model.InterfaceAddress]host.LinkAddress, map[string]host.Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.on), maps.Clone(n.links), nil
}

// change changes an address of an interface, unless the process has ended.
func (n *neighbourhood) change(index int, a netip.Addr, do func(name string)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.crashes {
		n.crashes = false
		n.cut.Store(true)
	}
	bytes := a.AsSlice()
	if n.ended() || n.cut.Load() && bytes[len(bytes)-1]&0x10 == 0 {
		return errEnded
	}
	for name, link := range n.links {
		if link.Index == index {
			do(name)
			return nil
		}
	}
	return unix.ENODEV
}

// Add implements [vitals.Links]. An address that is there stays as it is.
func (n *neighbourhood) Add(index int, a netip.Addr) error {
	return n.change(index, a, func(name string) {
		at := model.InterfaceAddress{Interface: name, Address: a}
		if _, there := n.on[at]; !there {
			n.on[at] = host.LinkAddress{Marked: true}
		}
	})
}

// Remove implements [vitals.Links].
func (n *neighbourhood) Remove(index int, a netip.Addr) error {
	err := n.change(index, a, func(name string) { delete(n.on, model.InterfaceAddress{Interface: name, Address: a}) })
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// Announce implements [vitals.Links].
func (n *neighbourhood) Announce(link string, a netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch at := (model.InterfaceAddress{Interface: link, Address: a}); {
	case n.ended():
		return errEnded
	case !n.links[link].Up:
		return unix.ENETDOWN
	default:
		n.heard[at] = true
		return nil
	}
}

// Probe implements [vitals.Links]. No neighbour answers.
func (n *neighbourhood) Probe(link string, _ netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.links[link].Up {
		return unix.ENETDOWN
	}
	return nil
}

// Listen implements [vitals.Links]: it ends with the interface.
func (n *neighbourhood) Listen(context.Context, string, func(host.Claim), func()) error { return nil }

// Follow implements [vitals.Links].
func (n *neighbourhood) Follow(ctx context.Context, changed func()) {
	n.mu.Lock()
	n.followers[n] = changed
	n.mu.Unlock()
	changed()
	<-ctx.Done()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.followers, n)
}

// edit changes the interfaces as another program or a cable does.
func (l *Links) edit(do func()) {
	l.mu.Lock()
	do()
	var all []func()
	for _, changed := range l.followers {
		all = append(all, changed)
	}
	l.mu.Unlock()
	for _, changed := range all {
		changed()
	}
}

// Toggle takes an interface down or up. The kernel removes IPv6 addresses from one that goes down.
func (l *Links) Toggle(name string) {
	l.edit(func() {
		link, exists := l.links[name]
		if link.Up = !link.Up; !exists {
			return
		}
		l.links[name] = link
		for at := range l.on {
			if at.Interface == name && !link.Up && at.Address.Is6() {
				delete(l.on, at)
			}
		}
		maps.DeleteFunc(l.heard, func(at model.InterfaceAddress, _ bool) bool { return at.Interface == name })
	})
}

// Replace deletes an interface and makes another one of its name.
func (l *Links) Replace(name string) {
	l.edit(func() {
		maps.DeleteFunc(l.on, func(at model.InterfaceAddress, _ host.LinkAddress) bool { return at.Interface == name })
		maps.DeleteFunc(l.heard, func(at model.InterfaceAddress, _ bool) bool { return at.Interface == name })
		l.index++
		l.links[name] = host.Link{Index: l.index, Up: true, Shared: true}
	})
}

// TakeOff removes an address, as another program does.
func (l *Links) TakeOff(at model.InterfaceAddress) {
	l.edit(func() {
		delete(l.on, at)
		delete(l.heard, at)
	})
}

// addresses returns all addresses in a fixed order.
func (l *Links) addresses() []model.InterfaceAddress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Keys(l.on), func(a, b model.InterfaceAddress) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Interface, b.Interface))
	})
}

// raise takes all interfaces up.
func (l *Links) raise() {
	for _, name := range slices.Sorted(maps.Keys(l.links)) {
		if !l.links[name].Up {
			l.Toggle(name)
		}
	}
}
