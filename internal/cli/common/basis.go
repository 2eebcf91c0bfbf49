package common

import (
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// FollowBasis gives a configuration what a running nftproxy says about itself beside its settings.
func FollowBasis(n *model.Config, b *api.Basis) {
	n.NoLimits = b.NoLimits
	n.Observe.Untracked = b.UntrackedLogs && n.Observe.Refusals()
	for _, f := range model.Families {
		if b.Serves(f) {
			n.Families = append(n.Families, f)
		}
	}
}

// KnownOf returns what features of a running nftproxy know, except what operators have changed; b may be nil.
func KnownOf(b *api.Basis) feature.Known {
	if b == nil {
		return feature.Known{}
	}
	return feature.Known{Failing: b.Failing, Starting: b.Starting, Resolved: b.Names}
}
