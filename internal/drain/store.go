package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// Store changes servers of the Balances of a source by the changes that a file has, and adds and ends changes. It is safe
// for concurrent use.
type Store struct {
	*Follower
	log *slog.Logger
	// unsaved receives a value when the file is to be written without a request.
	unsaved chan struct{}

	mu    sync.Mutex
	asked map[model.ServiceName]*question
	ended Changes // that the file still has
}

// question is a request that waits for the state of its Balance in the files, which only the
// reader of the source knows.
type question struct {
	Request
	answer chan answer
}

type answer struct {
	steps  []Step
	before []Change // of the Balance
	err    error
}

// NewStore returns the store of the changes in a file that is followed.
func NewStore(f *Follower, log *slog.Logger) *Store {
	s := &Store{Follower: f, log: log, unsaved: make(chan struct{}, 1), asked: make(map[model.ServiceName]*question)}
	if n := s.Changes().Len(); n > 0 {
		log.Info("runtime changes of an earlier run", "file", f.file.Path, "changes", n)
	}
	return s
}

// Run implements source.Editor.
func (s *Store) Run(ctx context.Context, _ func(...model.ServiceName)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.unsaved:
			if err := s.saveEnded(); err != nil {
				s.log.Error("the end of runtime changes is not kept for a restart, which compares with the files again", "error", err)
			}
		}
	}
}

// saveEnded removes changes that have ended from the file.
func (s *Store) saveEnded() error {
	s.working.Lock()
	defer s.working.Unlock()
	s.mu.Lock()
	ended := s.ended
	s.ended = nil
	s.mu.Unlock()
	_, err := s.file.UpdateAll(func(c Content) (Content, error) {
		for name, all := range ended {
			c.Changes = c.Changes.replaced(name, without(c.Changes[name], all))
		}
		return c, nil
	})
	return err
}

// Changes returns the changes in force.
func (s *Store) Changes() Changes { return s.current().Changes }

// Edit implements source.Editor.
func (s *Store) Edit(name model.ServiceName, state model.ServiceState) model.ServiceState {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.Changes()
	edited, ended := list.Edit(name, state)
	if len(ended) > 0 {
		s.setChanges(name, without(list[name], ended))
		s.ended = s.ended.replaced(name, append(s.ended[name], ended...))
		for _, c := range ended {
			s.log.Info("a runtime change ends: the entry of its server in the file has changed", "object", name.BalanceObject().String(), "server", c.String(), "change", c.Text())
		}
		parallel.Signal(s.unsaved)
	}
	if q := s.asked[name]; q != nil {
		delete(s.asked, name)
		a := s.serve(q, name, state)
		if a.err == nil && len(a.steps) > 0 {
			edited, _ = s.Changes().Edit(name, state)
		}
		q.answer <- a
	}
	return edited
}

// serve serves a request with the state of its Balance. s.mu is locked.
func (s *Store) serve(q *question, name model.ServiceName, state model.ServiceState) (a answer) {
	list := s.Changes()
	a.before = list[name]
	switch {
	case state.Service == nil && q.Action == ActionUndo:
		for _, c := range a.before {
			if q.All || (known{Server: c.Server}).matches(q.Server) {
				a.steps = append(a.steps, Step{Server: c.String(), Old: c.Text(), New: "as in the file"})
			}
		}
		s.setChanges(name, slices.DeleteFunc(slices.Clone(a.before), func(c Change) bool {
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
		err = e.stops(a.before, func(server Server) bool {
			return s.Follower.List().Includes(Target{server.Address, server.Port, name})
		})
	}
	if most := budget.RuntimeChanges; err == nil && list.Len()-len(a.before)+len(after) > most {
		err = fmt.Errorf("there are %d runtime changes, and there may be no more: write them into the file with --write, or undo some", list.Len())
	}
	if a.err = err; err == nil && len(e.steps) > 0 {
		a.steps = e.steps
		s.setChanges(name, after)
	}
	return a
}

// errNotRead means that a request was not served in time.
var errNotRead = errors.New("nftproxy has not read its files yet: see \"nftproxy status\"")

// Do serves a request, and returns what it has changed, once that is in the file. The rules
// follow.
func (s *Store) Do(ctx context.Context, name model.ServiceName, r Request) ([]Step, error) {
	s.working.Lock()
	defer s.working.Unlock()
	s.reread() // another process may have written it
	if p := s.Problem(); p != nil {
		return nil, fmt.Errorf("%w; \"nftproxy undo --all\" begins again without changes", p.Err)
	}
	var a answer
	asked, file := false, s.file
	file.Followed = true // a request concerns no drained endpoint, of which there is a copy
	_, err := file.UpdateAll(func(c Content) (_ Content, err error) {
		asked = true
		a, err = s.ask(ctx, name, r)
		c.Changes = s.Changes()
		return c, errors.Join(err, a.err)
	})
	switch {
	case err == nil:
		return a.steps, nil
	case len(a.steps) > 0: // they cannot be kept
		s.setChanges(name, a.before)
		s.announceTo(name)
	case asked:
		return nil, err
	}
	return nil, fmt.Errorf("nothing is changed: %w", err)
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

// UndoAll ends all changes, also if the file cannot be used.
func (s *Store) UndoAll() (ended Changes, err error) {
	s.working.Lock()
	defer s.working.Unlock()
	err = s.file.ClearChanges(s.List())
	if err == nil && s.file.Older != "" {
		err = atomicfile.Remove(s.file.Older)
	}
	if err != nil {
		return nil, fmt.Errorf("nothing is changed: %w", err)
	}
	ended = s.Changes()
	s.reread()
	return ended, nil
}
