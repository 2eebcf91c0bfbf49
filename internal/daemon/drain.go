package daemon

import (
	"net/url"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// drains returns the list of drained endpoints; nil: there is none.
func (w *work) drains() *drain.Follower {
	if f := feature.Find[interface{ Drains() *drain.Follower }](w.Features); f != nil {
		return f.Drains()
	}
	return nil
}

// Drains implements [report.Facts].
func (w *work) Drains(query url.Values) (*api.Drains, error) {
	asked := query["target"]
	if len(asked) > budget.DrainTargets {
		return nil, w.Words().Errorf("%d endpoints are too many: at most %d", len(asked), budget.DrainTargets)
	}
	var targets []drain.Target
	for _, text := range asked {
		t, err := drain.Decode(text)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	answer := &api.Drains{Drains: *w.drainsFor(targets)}
	if begin, asked := query["begin"]; asked {
		answer.Endpoints = drain.EndpointsLike(begin[0], w.agent)
	}
	return answer, nil
}

// drainsFor returns the drained endpoints, and the effect of draining others.
func (w *work) drainsFor(targets []drain.Target) *model.Drains {
	answer := &model.Drains{Words: w.Words(), Drained: []model.DrainEntry{}}
	var latest drain.List
	if drains := w.drains(); drains != nil {
		list, announced := drains.Announced()
		file := drains.File()
		answer.File, answer.State, answer.Drained = file.Path, file.State, list.Facts()
		answer.Pending = w.unserved(announced) // after the list: its change is pending until it is in the kernel
		if len(targets) > 0 {
			latest = drains.Latest()
		}
		if p := drains.Problem(); p != nil {
			answer.Error, answer.Since, answer.Unknown = p.Err.Error(), p.Since, p.Unknown
		}
	}
	if len(targets) > 0 {
		answer.Asked = drain.Ask(targets, latest, w.agent, func(name model.ServiceName) string {
			_, err := api.Resolve(name.String(), w.agent, w.Words())
			return err.Error()
		})
	}
	return answer
}

// unserved reports whether a sync that was requested then has yet to succeed. Requests
// after it do not matter: in a busy cluster there is always one.
func (w *work) unserved(requested time.Time) bool {
	state := w.agent.State()
	return state.LastSync.IsZero() || !state.Pending.IsZero() && !state.Pending.After(requested)
}
