// Package wildcard follows the addresses of this machine for Services of files that listen on all
// of them, or on all of an interface, or that masquerade from some of them. An [Engine] is an editor of a source.
package wildcard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Engine gives Services the addresses for which their listeners stand, and takes from them those to
// masquerade from that the machine lacks. While no Service needs it, it follows nothing. Its methods are safe for concurrent use.
type Engine struct {
	node   *feature.Node
	needed chan struct{} // closed with the first Service

	mu       sync.Mutex // guards what follows
	services map[model.ServiceName]*service
	known    []model.InterfaceAddress
	listed   bool
	failure  string // last logged
}

type service struct {
	given, edited model.ServiceState
	with          []model.InterfaceAddress // addresses that edited has
	stale         bool                     // edited is out of date
}

func newEngine(n *feature.Node) *Engine { return &Engine{node: n, needed: make(chan struct{})} }

func (e *Engine) Edit(name model.ServiceName, state model.ServiceState) model.ServiceState {
	e.mu.Lock()
	defer e.mu.Unlock()
	if state.Service == nil || !state.Service.NeedsAddresses() {
		delete(e.services, name)
		return state
	}
	if e.services == nil {
		e.services = make(map[model.ServiceName]*service)
		close(e.needed)
	}
	if !e.listed {
		e.list()
	}
	s := e.services[name]
	if s == nil {
		s = &service{stale: true}
		e.services[name] = s
	}
	if s.stale || s.given.Service != state.Service || !slices.Equal(s.given.Slices, state.Slices) {
		s.given, s.edited, s.with, s.stale = state, state.WithAddresses(e.known), e.known, false
	}
	return s.edited
}

// list lists the addresses. After an error, the known ones stay.
func (e *Engine) list() {
	all, err := e.node.Machine.Addresses()
	if err != nil {
		if e.failure != err.Error() {
			e.node.Log.Error("the addresses of this machine cannot be listed; Services stay on the known ones", "error", err)
		}
		e.failure = err.Error()
		return
	}
	e.known, e.listed, e.failure = all, true, ""
}

// Run follows the addresses until ctx ends.
func (e *Engine) Run(ctx context.Context, changed func(...model.ServiceName)) {
	select {
	case <-ctx.Done():
		return
	case <-e.needed:
	}
	e.node.Machine.FollowAddresses(ctx, func() {
		if names := e.again(); len(names) > 0 {
			changed(names...)
		}
	})
}

// again lists the addresses again, and returns the Services that get or lose one.
func (e *Engine) again() (names []model.ServiceName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.services) == 0 {
		return nil
	}
	e.list()
	for name, s := range e.services {
		if s.stale || !slices.Equal(s.with, e.known) {
			s.stale = true
			names = append(names, name)
		}
	}
	return names
}

// Problems implements [feature.Reporter]: it returns the listeners that stand for no address, and the addresses to masquerade from that
// the machine lacks.
func (e *Engine) Problems(time.Time) (out []model.Notice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range slices.SortedFunc(maps.Keys(e.services), model.ServiceName.Compare) {
		s := e.services[name].given.Service
		for _, l := range s.Idle(e.known) {
			of := "this machine has"
			if l.Interface != "" {
				of = fmt.Sprintf("there is no interface %s, or it has", l.Interface)
			}
			out = append(out, model.Notice{Object: name.Object(), Reason: model.NoListenAddress, Message: fmt.Sprintf("listen %s: %s no such address", l.Text, of)})
		}
		for _, a := range s.Missing(e.known) {
			out = append(out, model.Notice{Object: name.Object(), Reason: model.NoMasqueradeAddress, Message: fmt.Sprintf("%s: no interface of this machine has it, so that it is left out: ip address add %s/%d dev INTERFACE, or remove it", a, a, a.BitLen())})
		}
	}
	return out
}

type Kind struct{}

// New implements [feature.Kind]. Only Services of files listen on addresses of interfaces.
func (Kind) New(n *feature.Node) feature.Feature {
	if !n.Files {
		return nil
	}
	return newEngine(n)
}

func (Kind) Plan(s *model.Snapshot, k *feature.Known) (feature.Planned, error) {
	switch {
	case !slices.ContainsFunc(s.Services, (*model.Service).NeedsAddresses):
		return feature.Planned{Snapshot: s}, nil
	case k.Machine == nil:
		return feature.Planned{Snapshot: s, Warning: "entries of listen that stand for addresses of a machine are left out: here, none is known"}, nil
	case k.Machine.Err != nil:
		return feature.Planned{}, k.Machine.Err
	}
	return feature.Planned{Snapshot: s.Edit(func(_ model.ServiceName, state model.ServiceState) model.ServiceState {
		if !state.Service.NeedsAddresses() {
			return state
		}
		return state.WithAddresses(k.Machine.All)
	})}, nil
}
