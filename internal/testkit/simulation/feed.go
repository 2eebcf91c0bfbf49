package simulation

import (
	"context"
	"maps"
	"sync"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
)

// feed is a source of snapshots, of which a part may be unreadable as with files that are isolated from
// each other: before it is read for the first time, the source does not know what is in it.
type feed struct {
	objects *objects

	mu      sync.Mutex
	changed func()
	states  map[model.ServiceName]model.ServiceState
	begun   bool
	missing bool // a part was never read
}

// objects are what the author of the objects has written, which outlives processes.
type objects struct {
	mu         sync.Mutex
	snapshot   *model.Snapshot
	hidden     map[model.ServiceName]bool // in the part that cannot be read
	unreadable error                      // of all
	late       map[model.ServiceName]bool // whose endpoints have not arrived: those before are read with the Service of now
	again      bool                       // all objects arrive once more
}

func (o *objects) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func (f *feed) String() string                  { return "simulated objects" }
func (f *feed) AwaitNode(context.Context) error { return nil }
func (f *feed) Await(context.Context) error     { return nil }
func (f *feed) Node() *model.Node               { return nil }
func (f *feed) State() source.State             { return source.State{} }

// Run implements [source.Source].
func (f *feed) Run(ctx context.Context, changed func()) error {
	f.mu.Lock()
	f.changed = changed
	f.mu.Unlock()
	<-ctx.Done()
	return nil
}

// notify says that the objects have changed.
func (f *feed) notify() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed != nil {
		f.changed()
	}
}

// Load implements [source.Source].
func (f *feed) Load() (*model.Update, error) {
	f.objects.mu.Lock()
	defer f.objects.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.objects.unreadable; err != nil && f.begun {
		return nil, err
	}
	all := f.objects.snapshot
	hides := len(f.objects.hidden) > 0
	f.missing = hides && (f.missing || !f.begun)
	f.begun = true
	if hides {
		all = all.Edit(func(name model.ServiceName, s model.ServiceState) model.ServiceState {
			if f.objects.hidden[name] { // as read last, if ever
				return f.states[name]
			}
			return s
		})
		all = withoutGaps(all)
	}
	if len(f.objects.late) > 0 {
		all = withoutGaps(all.Edit(func(name model.ServiceName, s model.ServiceState) model.ServiceState {
			if f.objects.late[name] {
				s.Slices = f.states[name].Slices
			}
			return s
		}))
	}
	u, now := all.Since(f.states)
	f.states, u.Partial = now, f.missing
	if f.objects.again {
		f.objects.again = false
		for name, s := range now {
			u.Services[name] = copied(s)
		}
	}
	return u, nil
}

// copied returns an equal state in other memory.
func copied(s model.ServiceState) model.ServiceState {
	service := *s.Service
	out := model.ServiceState{Service: &service}
	for _, slice := range s.Slices {
		other := *slice
		out.Slices = append(out.Slices, &other)
	}
	return out
}

// withoutGaps returns a snapshot without Services that are not there.
func withoutGaps(s *model.Snapshot) *model.Snapshot {
	out := *s
	out.Services = nil
	for _, svc := range s.Services {
		if svc != nil {
			out.Services = append(out.Services, svc)
		}
	}
	return &out
}

// Lookup implements [source.Source].
func (f *feed) Lookup(names []model.ServiceName) map[model.ServiceName]model.ServiceState {
	f.mu.Lock()
	defer f.mu.Unlock()
	if names == nil {
		return maps.Clone(f.states)
	}
	out := make(map[model.ServiceName]model.ServiceState)
	for _, name := range names {
		if s, ok := f.states[name]; ok {
			out[name] = s
		}
	}
	return out
}
