package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Store has the changes in force. It edits the Balances of a source, and is safe for
// concurrent use.
type Store struct {
	path    string
	log     *slog.Logger
	drained func(model.ServiceName, Server) bool // nil: none is
	// unsaved receives a value when the file is to be written without a request.
	unsaved chan struct{}

	working sync.Mutex // held by the one request that is served, and while the file is written

	mu       sync.Mutex
	list     Changes // is replaced as a whole
	problem  error
	asked    map[model.ServiceName]*question
	announce func(...model.ServiceName)
}

// question is a request that waits for the state of its Balance in the files, which only the
// reader of the source knows.
type question struct {
	Request
	answer chan answer
}

type answer struct {
	steps  []api.ControlStep
	before []Change // of the Balance
	err    error
}

// OpenChanges reads the changes of a file. If it cannot be used, there are none, and [Store.Problem]
// says why. drained reports which servers the operator drains.
func OpenChanges(path string, drained func(model.ServiceName, Server) bool, log *slog.Logger) *Store {
	s := &Store{path: path, log: log, drained: drained, unsaved: make(chan struct{}, 1), asked: make(map[model.ServiceName]*question)}
	if s.list, s.problem = ReadChanges(path); s.problem != nil {
		log.Error("runtime changes cannot be read: the files alone count", "error", s.problem)
	} else if n := s.list.Len(); n > 0 {
		log.Info("runtime changes of an earlier run", "file", path, "changes", n)
	}
	return s
}

// Run implements source.Editor.
func (s *Store) Run(ctx context.Context, changed func(...model.ServiceName)) {
	s.mu.Lock()
	s.announce = changed
	s.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.unsaved:
			s.working.Lock()
			if err := s.List().write(s.path); err != nil {
				s.log.Error("the end of runtime changes is not kept for a restart, which compares with the files again", "error", err)
			}
			s.working.Unlock()
		}
	}
}

// Changes returns the changes in force.
func (s *Store) List() Changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// Problem returns why the file cannot be used; nil: it can.
func (s *Store) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Edit implements source.Editor.
func (s *Store) Edit(name model.ServiceName, state model.ServiceState) model.ServiceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	edited, ended := s.list.Edit(name, state)
	if len(ended) > 0 {
		s.set(name, without(s.list[name], ended))
		for _, c := range ended {
			s.log.Info("a runtime change ends: the entry of its server in the file has changed", "object", name.BalanceObject().String(), "server", c.String(), "change", c.Text())
		}
		select {
		case s.unsaved <- struct{}{}:
		default:
		}
	}
	if q := s.asked[name]; q != nil {
		delete(s.asked, name)
		a := s.serve(q, name, state)
		if a.err == nil && len(a.steps) > 0 {
			edited, _ = s.list.Edit(name, state)
		}
		q.answer <- a
	}
	return edited
}

// serve serves a request with the state of its Balance. s.mu is locked.
func (s *Store) serve(q *question, name model.ServiceName, state model.ServiceState) (a answer) {
	a.before = s.list[name]
	switch {
	case state.Service == nil && q.Action == api.ControlUndo:
		for _, c := range a.before {
			if q.All || (known{Server: c.Server}).matches(q.Server) {
				a.steps = append(a.steps, api.ControlStep{Server: c.String(), Old: c.Text(), New: "as in the file"})
			}
		}
		s.set(name, slices.DeleteFunc(slices.Clone(a.before), func(c Change) bool {
			return q.All || (known{Server: c.Server}).matches(q.Server)
		}))
		return a
	case state.Service == nil:
		a.err = fmt.Errorf("balance: there is no Balance %s", name)
		return a
	case !state.Service.Balance:
		a.err = fmt.Errorf("balance: %s is a Service, not a Balance: edit its EndpointSlices; \"nftproxy drain\" and \"disable\" keep connections away from an endpoint", name)
		return a
	}
	e := evaluation{Request: q.Request, name: name, state: state, now: time.Now()}
	after, err := e.evaluate(a.before)
	if err == nil {
		err = e.stops(a.before, func(server Server) bool { return s.drained != nil && s.drained(name, server) })
	}
	if most := budget.RuntimeChanges; err == nil && s.list.Len()-len(a.before)+len(after) > most {
		err = fmt.Errorf("there are %d runtime changes, and there may be no more: write them into the file with --write, or undo some", s.list.Len())
	}
	if a.err = err; err == nil && len(e.steps) > 0 {
		a.steps = e.steps
		s.set(name, after)
	}
	return a
}

// set replaces the changes of a Balance. s.mu is locked.
func (s *Store) set(name model.ServiceName, all []Change) {
	list := maps.Clone(s.list)
	if list == nil {
		list = make(Changes)
	}
	if len(all) == 0 {
		delete(list, name)
	} else {
		list[name] = all
	}
	s.list = list
}

// errNotRead means that a request was not served in time.
var errNotRead = errors.New("nftproxy has not read its files yet: see \"nftproxy status\"")

// Do serves a request, and returns what it has changed, once that is in the file. The rules
// follow.
func (s *Store) Do(ctx context.Context, name model.ServiceName, r Request) ([]api.ControlStep, error) {
	s.working.Lock()
	defer s.working.Unlock()
	if err := s.Problem(); err != nil {
		return nil, fmt.Errorf("%w; \"nftproxy undo --all\" begins again without changes", err)
	}
	a, err := s.ask(ctx, name, r)
	if err = errors.Join(err, a.err); err != nil || len(a.steps) == 0 {
		return nil, err
	}
	if err := s.List().write(s.path); err != nil {
		s.mu.Lock()
		s.set(name, a.before)
		s.mu.Unlock()
		s.announceTo(name)
		return nil, fmt.Errorf("nothing is changed: %w", err)
	}
	return a.steps, nil
}

// ask has the reader of the source serve a request.
func (s *Store) ask(ctx context.Context, name model.ServiceName, r Request) (a answer, err error) {
	q := &question{r, make(chan answer, 1)}
	s.mu.Lock()
	s.asked[name] = q
	s.mu.Unlock()
	s.announceTo(name)
	select {
	case a = <-q.answer:
		return a, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case a = <-q.answer: // in between
		return a, nil
	default:
		delete(s.asked, name)
		return a, errNotRead
	}
}

func (s *Store) announceTo(name model.ServiceName) {
	s.mu.Lock()
	announce := s.announce
	s.mu.Unlock()
	if announce != nil {
		announce(name)
	}
}

// UndoAll ends all changes, also if the file cannot be used.
func (s *Store) UndoAll() (ended Changes, err error) {
	s.working.Lock()
	defer s.working.Unlock()
	if err := (Changes{}).write(s.path); err != nil {
		return nil, fmt.Errorf("nothing is changed: %w", err)
	}
	s.mu.Lock()
	ended, s.list, s.problem = s.list, Changes{}, nil
	s.mu.Unlock()
	for _, name := range ended.Names() {
		s.announceTo(name)
	}
	return ended, nil
}
