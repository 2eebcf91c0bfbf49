package fastpath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlinkio"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

type Config struct {
	Node *model.Config
	// Shared makes a table that other programs may change.
	Shared bool
	Log    *slog.Logger
}

// Manager keeps the table in the kernel while a frontend takes the fast path. Its methods are
// safe for concurrent use.
type Manager struct {
	config Config
	wake   chan struct{}

	mu      sync.Mutex
	wanted  map[model.Frontend]struct{}
	changed map[model.Frontend]bool // since the kernel got them last: whether it has them
	left    bool                    // a Service that goes on has left the fast path
	state   State
}

type State struct {
	Frontends int  // whose connections take the fast path
	Active    bool // the kernel has the table
	// Err is why it has not, although there are frontends; nil: it is about to be made.
	Err error
}

// New returns a manager that does nothing until it runs.
func New(c Config) *Manager {
	return &Manager{config: c, wake: make(chan struct{}, 1)}
}

// Change follows changes of routes. It does not wait for the kernel.
func (m *Manager) Change(routes []model.RouteChange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range routes {
		_, had := m.wanted[r.Frontend]
		switch takes := r.New != nil && m.config.Node.NoFastPath(r.New) == nil; {
		case takes == had:
			continue
		case takes:
			if m.wanted == nil {
				m.wanted = make(map[model.Frontend]struct{})
			}
			m.wanted[r.Frontend] = struct{}{}
		default:
			delete(m.wanted, r.Frontend)
			// Without a route, connections go on where they are, as they do with rules.
			m.left = m.left || r.New != nil
		}
		if m.changed == nil {
			m.changed = make(map[model.Frontend]bool)
		}
		if before, again := m.changed[r.Frontend]; !again {
			m.changed[r.Frontend] = had
		} else if before != had {
			delete(m.changed, r.Frontend) // the kernel is right again
		}
	}
	if len(m.changed) > 0 || m.left {
		parallel.Signal(m.wake)
	}
}

func (m *Manager) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.state
	s.Frontends = len(m.wanted)
	return s
}

func (m *Manager) set(active bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = State{Active: active, Err: err}
}

const (
	// firstPause is the pause after a failure; it doubles up to lastPause.
	firstPause = 100 * time.Millisecond
	lastPause  = time.Minute
)

// Run keeps the kernel up to date until the context ends. Then the table is gone.
func (m *Manager) Run(ctx context.Context) { m.run(ctx, Tested) }

// run calls tested once, when the first frontend takes the fast path. It returns nil if the kernel has
// proved that it can do it, and may take seconds.
func (m *Manager) run(ctx context.Context, tested func(context.Context) error) {
	if !m.await(ctx) {
		return
	}
	if err := tested(ctx); err != nil {
		if ctx.Err() == nil {
			m.config.Log.Warn("the fast path stays off: this kernel did not pass the test of it", "error", err)
			m.set(false, err)
		}
		return
	}
	for pause := firstPause; m.await(ctx); {
		began := time.Now()
		err := m.session(ctx)
		if err == nil || ctx.Err() != nil {
			pause = firstPause
			continue
		}
		m.set(false, err)
		if errors.Is(err, errNoHardware) {
			m.config.Log.Warn("the fast path stays off", "error", err)
			return
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		m.config.Log.Warn("the fast path is interrupted: connections pass the rules; trying again", "error", err)
		parallel.Wait(ctx, pause)
		pause = min(2*pause, lastPause)
	}
}

// await waits until a frontend takes the fast path; false: the context has ended.
func (m *Manager) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		if m.State().Frontends > 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-m.wake:
		}
	}
	return false
}

// session has the table in the kernel until no frontend takes the fast path any more, the
// context ends, or something fails.
func (m *Manager) session(ctx context.Context) (err error) {
	links, err := netlinkio.SubscribeToLinks(ctx) // before they are listed
	if err != nil {
		return fmt.Errorf("watch network devices: %w", err)
	}
	defer links.Close()
	t, err := create(options{shared: m.config.Shared, hardware: m.config.Node.FastPath.Level == model.FastPathHardware})
	if err != nil {
		return err
	}
	defer func() {
		m.set(false, nil)
		err = errors.Join(err, t.close())
	}()
	h := &hooks{table: t}
	if err := errors.Join(t.change(nil, m.takeAll()), h.all()); err != nil {
		return err
	}
	m.set(true, nil)
	m.config.Log.Info("established connections take the fast path", "frontends", m.State().Frontends, "devices", len(h.names))
	return m.follow(ctx, h, links)
}

// follow follows changes of devices and frontends.
func (m *Manager) follow(ctx context.Context, h *hooks, links *subscription) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case u, more := <-links.Updates:
			if !more {
				return errors.Join(errors.New("changes of network devices were lost"), links.Err())
			}
			if err := h.event(&u); err != nil {
				return err
			}
		case <-m.wake:
			c := m.take()
			if c.empty {
				return nil
			}
			if err := h.change(c); err != nil {
				return err
			}
		}
	}
}

// changes are what the kernel does not have yet.
type changes struct {
	remove, add []model.Frontend
	left        bool // connections that are in the flow table are to leave it
	empty       bool // no frontend is left
}

func (m *Manager) takeAll() []model.Frontend {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed, m.left = nil, false
	return slices.Collect(maps.Keys(m.wanted))
}

func (m *Manager) take() (c changes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.left, c.empty = m.left, len(m.wanted) == 0
	for f, has := range m.changed {
		switch _, wants := m.wanted[f]; {
		case wants && !has:
			c.add = append(c.add, f)
		case has && !wants:
			c.remove = append(c.remove, f)
		}
	}
	m.changed, m.left = nil, false
	return c
}
