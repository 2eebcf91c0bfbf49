package vitals

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
)

// StateOf returns the state of a Balance on this node.
func StateOf(v *model.View) State {
	serving := served.ServingOf(v)
	state := State{Usable: serving.Usable, Servers: serving.Servers, Link: v.Service.Extra().Announce}
	if state.Link != "" && v.Service.External != nil {
		state.Addresses = v.Service.External.LoadBalancerIPs
	}
	return state
}

// places returns where the addresses of a Balance belong.
func (s State) places() (all []place) {
	if s.Link == "" {
		return nil
	}
	for _, a := range s.Addresses {
		all = append(all, place{Interface: s.Link, Address: a})
	}
	return all
}

// Action is what makes an address of an interface right.
type Action string

// The actions.
const (
	Nothing Action = ""
	Add     Action = "add"
	Remove  Action = "remove"
)

// actionFor returns what is to be done about an address that belongs to nftproxy: whether a Balance wants it now, and
// how the machine has it. One with a network was added by another program.
func actionFor(wanted, on bool, is host.LinkAddress) Action {
	switch {
	case wanted && !on:
		return Add
	case !wanted && on && !is.Network:
		return Remove
	}
	return Nothing
}

// Change is an address that is to be added to an interface, or removed from it.
type Change struct {
	Action    Action     `json:"action"`
	Address   netip.Addr `json:"address"`
	Interface string     `json:"interface"`
}

// String returns for example "+ address 203.0.113.10 on eth0".
func (c Change) String() string {
	sign := map[Action]string{Add: "+", Remove: "-"}[c.Action]
	return fmt.Sprintf("%s address %s on %s", sign, c.Address, c.Interface)
}

// Compare compares the addresses of this machine with those that Balances in these states want, as a running nftproxy
// does; path is its record. With keeps, nothing is removed: see [Config].
func Compare(links Links, path string, balances []State, keeps bool) ([]Change, error) {
	r := record{path: path}
	err := r.read()
	on, _, listErr := links.List()
	if err := errors.Join(err, listErr); err != nil {
		return nil, err
	}
	wanted := make(map[place]bool)
	for p, is := range on {
		if !keeps && (is.Marked || r.has(p, is)) {
			wanted[p] = false
		}
	}
	for _, s := range balances {
		for _, p := range s.places() {
			wanted[p] = wanted[p] || s.serves()
		}
	}
	var all []Change
	for p, wants := range wanted {
		is, there := on[p]
		if action := actionFor(wants, there, is); action != Nothing {
			all = append(all, Change{action, p.Address, p.Interface})
		}
	}
	slices.SortFunc(all, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Address.Compare(b.Address))
	})
	return all, nil
}
