package slowstart

import (
	"cmp"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Starting returns the endpoints that start slowly, for plans on this machine.
func (e *Engine) Starting() (out []feature.Starting) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for name, s := range e.starting {
		for _, a := range s.starting(now) {
			out = append(out, feature.Starting{Service: name, Starting: model.Starting{Endpoint: a.Endpoint, Part: a.Part}})
		}
	}
	slices.SortFunc(out, func(a, b feature.Starting) int {
		return cmp.Or(a.Service.Compare(b.Service), a.Endpoint.Compare(b.Endpoint))
	})
	return out
}

// AddTo implements [feature.Knower].
func (e *Engine) AddTo(k *feature.Known) { k.Starting = e.Starting() }

// Plan implements [feature.Planner].
func (Kind) Plan(s *model.Snapshot, k *feature.Known) (feature.Planned, error) {
	edited, starting := Mark(s, k.Starting)
	return feature.Planned{Snapshot: edited, Endpoints: starting, State: "starting slowly"}, nil
}

// Mark returns a snapshot as an engine edits it in which these endpoints start. Services without a
// slow start have none. marked has the endpoints, for example "10.1.1.2:80 of default/web".
func Mark(s *model.Snapshot, all []feature.Starting) (edited *model.Snapshot, marked []string) {
	if len(all) == 0 {
		return s, nil
	}
	of := make(map[model.ServiceName][]model.Starting)
	for _, a := range all {
		if a.Part > 0 && a.Part < model.StartParts {
			of[a.Service] = append(of[a.Service], a.Starting)
		}
	}
	edited = s.Edit(func(name model.ServiceName, state model.ServiceState) model.ServiceState {
		starting := of[name]
		if state.Service.Extra().SlowStart == 0 || len(starting) == 0 {
			return state
		}
		slices.SortFunc(starting, func(a, b model.Starting) int { return a.Endpoint.Compare(b.Endpoint) })
		for _, a := range starting {
			marked = append(marked, model.EndpointText(a.Endpoint)+" of "+name.String())
		}
		return state.WithStarting(starting)
	})
	return edited, marked
}
