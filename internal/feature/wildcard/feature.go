package wildcard

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind]. Only Services of files listen on addresses of interfaces.
func (Kind) New(n *feature.Node) feature.Feature {
	if !n.Files {
		return nil
	}
	return NewEngine(Config{List: n.Addresses, Follow: n.FollowAddresses, Log: n.Log})
}

// Plan implements [feature.Planner].
func (Kind) Plan(s *model.Snapshot, k *feature.Known) (feature.Planned, error) {
	switch {
	case !slices.ContainsFunc(s.Services, (*model.Service).NeedsAddresses):
		return feature.Planned{Snapshot: s}, nil
	case k.Addresses == nil:
		return feature.Planned{Snapshot: s, Warning: "entries of listen that stand for addresses of a machine are left out: here, none is known"}, nil
	}
	all, err := k.Addresses()
	if err != nil {
		return feature.Planned{}, err
	}
	return feature.Planned{Snapshot: s.Edit(func(_ model.ServiceName, state model.ServiceState) model.ServiceState {
		if !state.Service.NeedsAddresses() {
			return state
		}
		return state.WithAddresses(all)
	})}, nil
}
