package common

import (
	"errors"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/drain"
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

// DrainedOf returns the list of drained endpoints of a document.
func DrainedOf(all []api.Drained) (l drain.List, err error) {
	for _, d := range all {
		e := drain.Entry{Since: d.Since}
		if e.Target, err = drain.Decode(strings.TrimSpace(d.Endpoint + " " + d.Service)); err != nil {
			return nil, err
		}
		l = append(l, e)
	}
	return l, nil
}

// DrainsOf returns an answer about drains; nil: there is none.
func DrainsOf(d *api.Drains) (*drain.Answer, error) {
	if d == nil {
		return nil, nil
	}
	out := &drain.Answer{File: d.File, State: d.State, Pending: d.Pending, Words: d.Words}
	if d.Error != "" {
		out.Problem = &drain.Problem{Err: errors.New(d.Error), Since: d.Since, Unknown: d.Unknown}
	}
	var err error
	if out.Drained, err = DrainedOf(d.Drained); err != nil {
		return nil, err
	}
	for _, a := range d.Asked {
		target, err := drain.Decode(strings.TrimSpace(a.Endpoint + " " + a.Service))
		if err != nil {
			return nil, err
		}
		out.Asked = append(out.Asked, drain.Asked{Target: target, Unknown: a.Unknown, DidYouMean: a.DidYouMean, Services: a.Services})
	}
	return out, nil
}
