package daemon

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/words"
)

// followDrains follows the file with drained endpoints and changes of servers, which are for files. A node may have
// no watch left for it, which keeps nothing from being served.
func (d *Daemon) followDrains() {
	file := drain.File{Path: d.Config.Own.DrainFile, State: d.StateDirectory}
	if older := d.Config.Own.ChangesFile; d.hasFiles() && file.Path == "" {
		file.Path = older
	} else if d.hasFiles() {
		file.Older = older
	}
	if file.Path == "" {
		return
	}
	watcher, err := files.NewWatcher(file.Path) // before the file is read, so that no change is lost
	watch := func(context.Context, func()) error { return err }
	if err == nil {
		watch = watcher.Run
	}
	d.drains = drain.Follow(file, watch, d.Log)
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
	answer := drainsOf(w.drainsFor(targets))
	if begin, asked := query["begin"]; asked {
		answer.Endpoints = drain.EndpointsLike(begin[0], w.agent)
	}
	return answer, nil
}

// drainsFor returns the drained endpoints, and the effect of draining others.
func (w *work) drainsFor(targets []drain.Target) *drain.Answer {
	answer := &drain.Answer{Words: w.Words()}
	var latest drain.List
	if w.drains != nil {
		list, announced := w.drains.Announced()
		file := w.drains.File()
		answer.File, answer.State, answer.Drained = file.Path, file.State, list
		answer.Pending = w.unserved(announced) // after the list: its change is pending until it is in the kernel
		if len(targets) > 0 {
			latest = w.drains.Latest()
		}
		answer.Problem = w.drains.Problem()
	}
	if len(targets) > 0 {
		answer.Asked = drain.Ask(targets, latest, w.agent, func(name model.ServiceName) string {
			_, err := api.Resolve(name.String(), w.agent.Names(), w.Words())
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

func drainsOf(a *drain.Answer) *api.Drains {
	out := &api.Drains{File: a.File, State: a.State, Pending: a.Pending, Drained: drainedOf(a.Drained), Words: a.Words}
	if p := a.Problem; p != nil {
		out.Error, out.Since, out.Unknown = p.Err.Error(), p.Since, p.Unknown
	}
	for _, a := range a.Asked {
		asked := api.Asked{Endpoint: a.Endpoint(), Service: serviceText(a.Service), Unknown: a.Unknown, DidYouMean: a.DidYouMean}
		for _, e := range a.Services {
			asked.Services = append(asked.Services, api.Effect{Service: e.Service.String(), Balance: e.Balance, Endpoints: e.Endpoints, Left: e.Left,
				Stops: e.Stops, Drained: e.Drained, Relayed: e.Relayed, Frontends: e.Frontends})
		}
		out.Asked = append(out.Asked, asked)
	}
	return out
}

// drainedOf returns a list as documents have it; not nil.
func drainedOf(l drain.List) []api.Drained {
	out := make([]api.Drained, len(l))
	for i, e := range l {
		out[i] = api.Drained{Endpoint: e.Endpoint(), Service: serviceText(e.Service), Since: e.Since}
	}
	return out
}

// serviceText returns the name of a Service; empty: there is none.
func serviceText(name model.ServiceName) string {
	if name == (model.ServiceName{}) {
		return ""
	}
	return name.String()
}

// drainProblems returns why the list of drained endpoints cannot be used.
func (w *work) drainProblems() []model.Notice {
	if w.drains == nil {
		return nil
	}
	p := w.drains.Problem()
	if p == nil {
		return nil
	}
	reason := model.DrainFileUnusable
	if p.Unknown {
		reason = model.DrainsUnknown
	}
	return []model.Notice{{Object: model.Object{Kind: "Drain file"}, Reason: reason, Message: strings.ReplaceAll(p.Err.Error(), "\n", "; ")}}
}

// drainNotes returns the drained endpoints.
func (w *work) drainNotes() (out []model.Notice) {
	if w.drains == nil {
		return nil
	}
	for _, e := range w.drains.List() {
		message := "no new connections, from nftproxy drain"
		if !e.Since.IsZero() {
			message += " at " + e.Since.Local().Format("2006-01-02 15:04:05")
		}
		in := w.Words()
		if e.Service != (model.ServiceName{}) {
			in = words.Of(w.IsBalance(e.Service))
		}
		out = append(out, model.Notice{Object: model.Object{Kind: w.Words().Text("Endpoint"), Name: e.Text(in)}, Reason: model.EndpointDrained, Message: message})
	}
	return out
}
