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
func KnownOf(b *api.Basis) (k feature.Known) {
	if b == nil {
		return k
	}
	for _, f := range b.Failing {
		of := model.ServiceName{Namespace: f.Namespace, Name: f.Service}
		k.Failing = append(k.Failing, feature.Failing{Service: of, Endpoint: f.Endpoint, Protocol: f.Protocol, Check: f.Check})
	}
	for _, e := range b.Starting {
		of := model.ServiceName{Namespace: e.Namespace, Name: e.Service}
		k.Starting = append(k.Starting, feature.Starting{Service: of, Starting: model.Starting{Endpoint: e.Endpoint, Part: e.Part}})
	}
	for _, n := range b.Names {
		r := feature.Resolved{Service: model.ServiceName{Namespace: n.Namespace, Name: n.Service}, Name: n.Name}
		for _, a := range n.Addresses {
			r.Addresses = append(r.Addresses, model.NamedAddress{Address: a.Address, Port: a.Port, Weight: a.Weight, Priority: a.Priority})
		}
		k.Resolved = append(k.Resolved, r)
	}
	return k
}

// EntriesOf returns changes of servers of a document.
func EntriesOf(all []api.RuntimeChange) (out []drain.ChangeEntry) {
	for _, c := range all {
		out = append(out, drain.ChangeEntry(c))
	}
	return out
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
		asked := drain.Asked{Unknown: a.Unknown, DidYouMean: a.DidYouMean}
		if asked.Target, err = drain.Decode(strings.TrimSpace(a.Endpoint + " " + a.Service)); err != nil {
			return nil, err
		}
		for _, e := range a.Services {
			of, err := drain.ParseService(e.Service)
			if err != nil {
				return nil, err
			}
			asked.Services = append(asked.Services, drain.Effect{Service: of, Balance: e.Balance, Endpoints: e.Endpoints, Left: e.Left,
				Stops: e.Stops, Drained: e.Drained, Relayed: e.Relayed, Frontends: e.Frontends})
		}
		out.Asked = append(out.Asked, asked)
	}
	return out, nil
}
