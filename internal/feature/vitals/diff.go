package vitals

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/served"
)

// stateOf returns the state of a Balance on this node.
func stateOf(v *model.View) State {
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

// actionFor returns what is to be done about an address that belongs to nftproxy: whether a Balance wants it now, and
// how the machine has it. One with a network was added by another program.
func actionFor(wanted, on bool, is host.LinkAddress) feature.AddressAction {
	switch {
	case wanted && !on:
		return feature.AddAddress
	case !wanted && on && !is.Network:
		return feature.RemoveAddress
	}
	return feature.NoAction
}

// CompareAddresses implements [feature.Comparer] as a running nftproxy compares them.
func (Kind) CompareAddresses(balances []*model.View, runtimeDirectory string, keeps bool, log *slog.Logger) ([]feature.AddressChange, error) {
	r := record{path: RecordIn(runtimeDirectory)}
	links := host.Neighbourhood{Log: log}
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
	for _, v := range balances {
		s := stateOf(v)
		for _, p := range s.places() {
			wanted[p] = wanted[p] || s.serves()
		}
	}
	var all []feature.AddressChange
	for p, wants := range wanted {
		is, there := on[p]
		if action := actionFor(wants, there, is); action != feature.NoAction {
			all = append(all, feature.AddressChange{Action: action, Address: p.Address, Interface: p.Interface})
		}
	}
	slices.SortFunc(all, func(a, b feature.AddressChange) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Address.Compare(b.Address))
	})
	return all, nil
}
