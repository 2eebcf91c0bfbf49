package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/control"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// controlTime is how long a request may wait until the rules have its change.
const controlTime = 15 * time.Second

// findSocket finds the path of the control socket.
func (d *Daemon) findSocket() {
	path := d.Config.Own.ControlSocket
	if path == "" && d.RuntimeDirectory != "" {
		path = filepath.Join(d.RuntimeDirectory, control.Name)
	}
	configured := path != "" && path != config.NoControlSocket
	if path == "" {
		path = control.DefaultPath()
	}
	if path != "" && path != config.NoControlSocket {
		d.socket = &control.Socket{Path: path, Optional: !configured, Log: d.Log}
	}
}

// asksForSocket reports whether a setting asks for a control socket.
func (d *Daemon) asksForSocket() bool { return d.socket != nil && !d.socket.Optional }

// changed returns the changes of servers; nil: commands change none.
func (d *Daemon) changed() *drain.Store {
	if f := feature.Find[interface{ Changed() *drain.Store }](d.Features); f != nil {
		return f.Changed()
	}
	return nil
}

// controller serves the requests of the control socket.
type controller struct {
	*work
	changed *drain.Store
	drains  *drain.Follower
	drained sync.Mutex // one drain at a time

	mu     sync.Mutex
	synced chan struct{} // closed at the end of a sync
}

// observe is an observer of syncs.
func (c *controller) observe(*agent.Sync) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.synced)
	c.synced = make(chan struct{})
}

// answer serves a request. A mistake changes nothing.
func (c *controller) answer(ctx context.Context, r *api.Control, peer control.Peer) *api.Controlled {
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	name, err := c.resolve(r)
	if err != nil {
		return &api.Controlled{Error: err.Error()}
	}
	out := &api.Controlled{}
	if r.Balance != "" {
		out.Balance = name.String()
	}
	if r.Action == api.ControlList {
		return c.complete(out, name)
	}
	defer c.agent.Hurry()()
	begin := time.Now()
	out.Steps, err = c.serve(ctx, name, r, peer)
	if out.Changed = len(out.Steps) > 0; out.Changed {
		for _, s := range out.Steps {
			c.Log.Info("runtime change", "command", r.Action, "object", objectOf(name), "server", s.Server, "old", s.Old, "new", s.New,
				"uid", peer.UID, "pid", peer.PID)
		}
		err = errors.Join(err, c.await(ctx, begin, time.Now()))
	}
	if err != nil {
		return &api.Controlled{Error: err.Error()}
	}
	return c.complete(out, name)
}

// objectOf returns the object of a name for the log.
func objectOf(name model.ServiceName) string {
	if name == (model.ServiceName{}) {
		return "all Balances"
	}
	return name.BalanceObject().String()
}

// resolve returns the Balance of a request. Changes of one that no file has can be undone.
func (c *controller) resolve(r *api.Control) (name model.ServiceName, err error) {
	if r.Balance == "" {
		if r.Action != api.ControlList && (r.Action != api.ControlUndo || r.Server != "") {
			return name, errors.New("balance: missing: write its name")
		}
		return name, nil
	}
	if name, err = (api.Names{Named: c.agent.Named, All: c.agent.Names, Words: c.Words}).Resolve(r.Balance); err == nil {
		return name, nil
	}
	if of, other := api.Resolve(r.Balance, c.changed.Changes().Names(), words.Balance); other == nil {
		return of, nil
	}
	return name, fmt.Errorf("balance: %w", err)
}

// serve makes the change that a request asks for.
func (c *controller) serve(ctx context.Context, name model.ServiceName, r *api.Control, peer control.Peer) ([]api.ControlStep, error) {
	if r.Action == api.ControlUndo && r.Balance == "" {
		return c.undoAll()
	}
	request, err := drain.ParseRequest(drain.Command{Action: r.Action, Server: r.Server, Weight: r.Weight, Force: r.Force}, peer.String())
	if err != nil {
		return nil, err
	}
	switch r.Action {
	case api.ControlDisable, api.ControlEnable:
		return c.drain(ctx, name, request)
	}
	done, err := c.changed.Do(ctx, name, request)
	return controlSteps(done), err
}

func controlSteps(all []drain.Step) (out []api.ControlStep) {
	for _, s := range all {
		out = append(out, api.ControlStep(s))
	}
	return out
}

// runtimeChanges returns changes as documents have them; not nil.
func runtimeChanges(l drain.Changes) []api.RuntimeChange {
	out := []api.RuntimeChange{}
	for _, e := range l.Entries() {
		out = append(out, api.RuntimeChange(e))
	}
	return out
}

func (c *controller) undoAll() (steps []api.ControlStep, err error) {
	ended, err := c.changed.UndoAll()
	for _, name := range ended.Names() {
		for _, change := range ended[name] {
			was, is := change.Undone()
			steps = append(steps, api.ControlStep{Server: name.String() + " " + change.Server.String(), Old: was, New: is})
		}
	}
	return steps, err
}

// drain keeps new connections away from a server, or ends that, in the list that "nftproxy
// drain" has.
func (c *controller) drain(ctx context.Context, name model.ServiceName, r drain.Request) ([]api.ControlStep, error) {
	if c.drains == nil {
		return nil, errors.New("nftproxy follows no drain file: start it with --drain-file")
	}
	c.drained.Lock()
	defer c.drained.Unlock()
	t := drain.Target{Address: r.Server.Address, Port: r.Server.Port, Service: name}
	list, err := c.drains.File().Read()
	if err != nil {
		return nil, err
	}
	enable, is := r.Action == api.ControlEnable, list.Includes(t)
	if enable && !hasEntry(list, t) {
		if is {
			return nil, fmt.Errorf("server: %s is drained in all Balances: \"nftproxy undrain %s\" ends that", t.Endpoint(), t.Address)
		}
		return nil, c.knows(t)
	}
	if !enable && is {
		return nil, nil
	}
	u := &drain.Update{File: c.drains.File(), Targets: []drain.Target{t}, Undo: enable, Force: r.Force, Ask: c.askDrains}
	if _, err := u.Write(ctx); err != nil {
		return nil, err
	}
	c.drains.Reread()
	step := api.ControlStep{Server: t.Endpoint(), Old: "enabled", New: "disabled"}
	if enable {
		step.Old, step.New = step.New, step.Old
	}
	return []api.ControlStep{step}, nil
}

// hasEntry reports whether a list has an entry that a target includes.
func hasEntry(l drain.List, t drain.Target) bool {
	_, err := l.Without(words.Balance, t)
	return err == nil
}

// knows returns an error if the Balance of a target does not have it.
func (c *controller) knows(t drain.Target) error {
	answer := c.drainsFor([]drain.Target{t})
	if len(answer.Asked) == 1 && len(answer.Asked[0].Services) == 0 {
		return fmt.Errorf("server: %s has no server %s", t.Service, t.Endpoint())
	}
	return nil
}

func (c *controller) askDrains(_ context.Context, targets []drain.Target) (*drain.Answer, error) {
	return c.drainsFor(targets), nil
}

// withoutSync is how long a change that has not reached the agent is waited for. It may need
// no sync, like the weight of a server that is drained.
const withoutSync = time.Second

// await waits until the rules have what was requested between two times.
func (c *controller) await(ctx context.Context, begin, end time.Time) error {
	late := time.NewTimer(withoutSync)
	defer late.Stop()
	for waited := false; ; {
		c.mu.Lock()
		synced := c.synced
		c.mu.Unlock()
		state := c.agent.State()
		pending := !state.Pending.IsZero() && !state.Pending.After(end)
		if !state.LastSync.IsZero() && !pending && (waited || state.LastSync.After(begin)) {
			return nil
		}
		select {
		case <-synced:
		case <-late.C:
			waited = true
		case <-ctx.Done():
			return fmt.Errorf("the change is kept, but the rules do not have it after %s: see \"nftproxy status\"", controlTime)
		}
	}
}

// complete adds the changes in force, of a Balance or of all.
func (c *controller) complete(out *api.Controlled, name model.ServiceName) *api.Controlled {
	list := c.changed.Changes()
	if name != (model.ServiceName{}) {
		list = drain.Changes{name: list[name]}
	}
	out.Changes, out.Sources = runtimeChanges(list), c.Sources
	return out
}
