package drain

import (
	"context"
	"fmt"
	"log/slog"
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
	given map[model.ServiceName]model.ServiceState // Services, without changes
	ended Changes                                  // that the file still has
}

// NewStore returns the store of the changes in a file that is followed.
func NewStore(f *Follower, log *slog.Logger) *Store {
	s := &Store{Follower: f, log: log, unsaved: make(chan struct{}, 1), given: make(map[model.ServiceName]model.ServiceState)}
	if n := s.Changes().Len(); n > 0 {
		log.Info("runtime changes of an earlier run", "file", f.file.Path, "changes", n)
	}
	return s
}

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

func (s *Store) Changes() Changes { return s.current().Changes }

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
	if s.given[name] = state; state.Service == nil {
		delete(s.given, name)
	}
	return edited
}

// evaluate returns what a request changes, and the changes of its Balance then.
func (s *Store) evaluate(name model.ServiceName, r Request) (steps []Step, after []Change, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.Changes()
	e := evaluation{Request: r, name: name, state: s.given[name], now: time.Now()}
	switch {
	case e.state.Service == nil && r.Action == ActionUndo:
		for _, c := range list[name] {
			if r.All || (known{Server: c.Server}).matches(r.Server) {
				steps = append(steps, Step{Server: c.String(), Old: c.Text(), New: "as in the file"})
			} else {
				after = append(after, c)
			}
		}
		return steps, after, nil
	case e.state.Service == nil:
		return nil, nil, fmt.Errorf("balance: there is no Balance %s", name)
	case !e.state.Service.Balance:
		return nil, nil, fmt.Errorf("balance: %s is a Service, not a Balance: edit its EndpointSlices; \"nftproxy drain\" and \"disable\" keep connections away from an endpoint", name)
	}
	if after, err = e.evaluate(list[name]); err == nil {
		err = e.stops(list[name], func(server Server) bool { return s.List().Includes(Target{server.Address, server.Port, name}) })
	}
	if most := budget.RuntimeChanges; err == nil && list.Len()-len(list[name])+len(after) > most {
		err = fmt.Errorf("there are %d runtime changes, and there may be no more: write them into the file with --write, or undo some", list.Len())
	}
	if err != nil {
		return nil, nil, err
	}
	return e.steps, after, nil
}

// Do serves a request, and returns what it has changed, once that is in the file. The rules
// follow.
func (s *Store) Do(name model.ServiceName, r Request) (steps []Step, err error) {
	s.working.Lock()
	defer s.working.Unlock()
	s.reread() // another process may have written it
	if p := s.Problem(); p != nil {
		return nil, fmt.Errorf("%w; \"nftproxy undo --all\" begins again without changes", p.Err)
	}
	var refused error
	var after []Change
	file := s.file
	file.Followed = true // a request concerns no drained endpoint, of which there is a copy
	_, err = file.UpdateAll(func(c Content) (Content, error) {
		steps, after, refused = s.evaluate(name, r)
		c.Changes = s.Changes().replaced(name, after)
		return c, refused
	})
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, fmt.Errorf("nothing is changed: %w", err)
	case len(steps) > 0:
		s.setChanges(name, after)
		s.announceTo(name)
	}
	return steps, nil
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
