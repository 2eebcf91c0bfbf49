package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
func (c *controller) answer(ctx context.Context, r *api.Control, peer control.Peer) (*api.Controlled, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	name, err := c.resolve(r)
	if err != nil {
		return nil, err
	}
	out := new(api.Controlled)
	if r.Action != api.ControlList {
		if out.Steps, err = c.change(ctx, name, r, peer); err != nil {
			return nil, err
		}
	}
	list := c.changed.Changes()
	if r.Balance != "" {
		out.Balance, list = name.String(), drain.Changes{name: list[name]}
	}
	out.Changed, out.Changes, out.Sources = len(out.Steps) > 0, runtimeChanges(list), c.Sources
	return out, nil
}

// change makes a change, and waits until the rules have it.
func (c *controller) change(ctx context.Context, name model.ServiceName, r *api.Control, peer control.Peer) (steps []api.ControlStep, err error) {
	defer c.agent.Hurry()()
	begin := time.Now()
	done, err := c.serve(ctx, name, r, peer)
	if len(done) == 0 {
		return nil, err
	}
	object := "all Balances"
	if r.Balance != "" {
		object = name.BalanceObject().String()
	}
	for _, s := range done {
		c.Log.Info("runtime change", "command", r.Action, "object", object, "server", s.Server, "old", s.Old, "new", s.New,
			"uid", peer.UID, "pid", peer.PID)
		steps = append(steps, api.ControlStep(s))
	}
	return steps, errors.Join(err, c.await(ctx, begin, time.Now()))
}

// resolve returns the Balance of a request. Changes of one that no file has can be undone.
func (c *controller) resolve(r *api.Control) (name model.ServiceName, err error) {
	if r.Balance == "" {
		if r.Action != api.ControlList && (r.Action != api.ControlUndo || r.Server != "") {
			return name, errors.New("balance: missing: write its name")
		}
		return name, nil
	}
	if name, err = api.Resolve(r.Balance, c.agent, c.Words()); err == nil {
		return name, nil
	}
	if of, other := api.Resolve(r.Balance, api.NameList(c.changed.Changes().Names()), words.Balance); other == nil {
		return of, nil
	}
	return name, fmt.Errorf("balance: %w", err)
}

// serve makes the change that a request asks for.
func (c *controller) serve(ctx context.Context, name model.ServiceName, r *api.Control, peer control.Peer) ([]drain.Step, error) {
	if r.Action == api.ControlUndo && r.Balance == "" {
		return c.undoAll()
	}
	request, err := drain.ParseRequest(drain.Command{Action: r.Action, Server: r.Server, Weight: r.Weight, Force: r.Force}, peer.String())
	switch {
	case err != nil:
		return nil, err
	case r.Action == api.ControlDisable, r.Action == api.ControlEnable:
		return c.drain(ctx, name, request)
	}
	return c.changed.Do(name, request)
}

// runtimeChanges returns changes as documents have them; not nil.
func runtimeChanges(l drain.Changes) []model.RuntimeChange {
	return append([]model.RuntimeChange{}, l.Entries()...)
}

func (c *controller) undoAll() (steps []drain.Step, err error) {
	ended, err := c.changed.UndoAll()
	for _, name := range ended.Names() {
		for _, change := range ended[name] {
			was, is := change.Undone()
			steps = append(steps, drain.Step{Server: name.String() + " " + change.Server.String(), Old: was, New: is})
		}
	}
	return steps, err
}

// drain keeps new connections away from a server, or ends that, in the list that "nftproxy
// drain" has.
func (c *controller) drain(ctx context.Context, name model.ServiceName, r drain.Request) ([]drain.Step, error) {
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
	step := drain.Step{Server: t.Endpoint(), Old: "enabled", New: "disabled"}
	enable, is := r.Action == api.ControlEnable, list.Includes(t)
	if enable {
		step.Old, step.New = step.New, step.Old
		if _, err := list.Without(words.Balance, t); err != nil { // it has no entry of its own
			return nil, c.explainEnabled(t, is)
		}
	} else if is {
		return nil, nil
	}
	u := &drain.Update{File: c.drains.File(), Targets: []drain.Target{t}, Undo: enable, Force: r.Force,
		Ask: func(_ context.Context, targets []drain.Target) (*model.Drains, error) {
			return c.drainsFor(targets), nil
		}}
	if _, err := u.Write(ctx); err != nil {
		return nil, err
	}
	c.drains.Reread()
	return []drain.Step{step}, nil
}

// explainEnabled returns why a server that is not drained in its Balance cannot be enabled; nil: it is.
func (c *controller) explainEnabled(t drain.Target, everywhere bool) error {
	if everywhere {
		return fmt.Errorf("server: %s is drained in all Balances: \"nftproxy undrain %s\" ends that", t.Endpoint(), t.Address)
	}
	if asked := c.drainsFor([]drain.Target{t}).Asked; len(asked) == 1 && len(asked[0].Services) == 0 {
		return fmt.Errorf("server: %s has no server %s", t.Service, t.Endpoint())
	}
	return nil
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

// maxRequest limits a request to the control socket, in bytes.
const maxRequest = 64 << 10

// socketHandler answers requests to the control socket: pages, and changes.
func (w *work) socketHandler(pages http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.HandleFunc(api.ControlPath, func(out http.ResponseWriter, _ *http.Request) {
		writeControlled(out, http.StatusNotFound, &api.Controlled{Error: "send POST to " + api.ControlPath})
	})
	mux.HandleFunc("POST "+api.ControlPath, w.answerChange)
	return mux
}

// answerChange answers a request for a change of servers.
func (w *work) answerChange(out http.ResponseWriter, r *http.Request) {
	if w.control == nil {
		writeControlled(out, http.StatusUnprocessableEntity, &api.Controlled{Error: "the running nftproxy takes no runtime changes: they are of Balances in files, and need --control-socket or its systemd unit"})
		return
	}
	request := new(api.Control)
	d := json.NewDecoder(http.MaxBytesReader(out, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(request); err != nil {
		writeControlled(out, http.StatusBadRequest, &api.Controlled{Error: "read request: " + err.Error()})
		return
	}
	peer := control.PeerOf(r)
	answer, err := w.control.answer(r.Context(), request, peer)
	if err != nil {
		w.Log.Warn("a runtime change is refused", "command", request.Action, "object", request.Balance, "server", request.Server, "uid", peer.UID, "pid", peer.PID, "error", err.Error())
		writeControlled(out, http.StatusUnprocessableEntity, &api.Controlled{Error: err.Error()})
		return
	}
	writeControlled(out, http.StatusOK, answer)
}

func writeControlled(w http.ResponseWriter, status int, answer *api.Controlled) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // an error: the client is gone
}
