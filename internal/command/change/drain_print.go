package change

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/show"
)

// drainResult is what drain and undrain report, with what they ask for it.
type drainResult struct {
	api.DrainResult
	left    int // entries of the list
	targets []conntrack.Target
}

// result returns the state of targets, or of the whole list.
func (o *drainOptions) result(path string, report *model.Drains, list drain.List, targets []drain.Target) *drainResult {
	r := &drainResult{DrainResult: api.DrainResult{File: path, Endpoints: []api.DrainedEndpoint{}}, left: len(list)}
	if o.noDaemon != nil && report == nil {
		r.NoDaemon = command.OneLine(o.noDaemon)
	}
	if report != nil {
		r.Words, r.Error, r.Unknown = report.Words, report.Error, report.Unknown
	}
	for i, t := range targets {
		var frontends []string
		relayed := false
		e := api.DrainedEndpoint{Endpoint: t.Endpoint(), Drained: list.Includes(t)}
		if t.Service != (model.ServiceName{}) {
			e.Service = t.Service.String()
		}
		if j := slices.IndexFunc(list, func(e drain.Entry) bool { return e.Target == t }); j >= 0 {
			e.Since = list[j].Since
		}
		if report != nil && i < len(report.Asked) {
			for _, s := range report.Asked[i].Services {
				e.Services = append(e.Services, api.DrainedService{ServiceText: s.ServiceText, Endpoints: s.Endpoints, Left: s.Left})
				frontends = append(frontends, s.Frontends...)
				relayed = relayed || s.Relayed
			}
		}
		r.Endpoints = append(r.Endpoints, e)
		target := counted(t, frontends)
		if relayed {
			target.Relays, _ = host.ServingAddresses() // without them the connections of the relay are not counted
		}
		r.targets = append(r.targets, target)
	}
	if !o.undo {
		r.count()
	}
	return r
}

// counted returns what is counted of a target. If that is limited to a Service, these are the
// connections that clients made to its frontends, as far as these are known.
func counted(t drain.Target, frontends []string) conntrack.Target {
	out := conntrack.Target{Address: t.Address, Port: t.Port}
	if t.Service == (model.ServiceName{}) {
		return out
	}
	for _, text := range frontends {
		if f, err := api.ParseLabel(text); err == nil {
			out.Frontends = append(out.Frontends, f)
		}
	}
	return out
}

func (r *drainResult) count() {
	counts, err := conntrack.CountTargets(r.targets)
	if err != nil {
		r.NotCounted = err.Error()
		return
	}
	for i := range r.Endpoints {
		n := sum(counts[i : i+1])
		r.Endpoints[i].Open = &n
	}
}

func sum(counts []conntrack.Open) (n api.OpenCount) {
	for _, open := range counts {
		for p, more := range open {
			n.Add(p, more)
		}
	}
	return n
}

func (r *drainResult) write(w io.Writer, o *drainOptions) error {
	return o.output.Print(w, r.DrainResult, func(w io.Writer) error {
		return show.DrainResult(w, &r.DrainResult, show.DrainView{Undo: o.undo, All: o.all, Left: r.left, Colour: o.output.Paint})
	})
}

func (o *drainOptions) printList(c *cobra.Command, file drain.File, report *model.Drains) error {
	list, err := o.listed(file, report)
	if err != nil {
		return err
	}
	targets := make([]drain.Target, len(list))
	for i, e := range list {
		targets[i] = e.Target
	}
	if report != nil && len(targets) > 0 {
		if report, err = o.askAll(c.Context(), targets); err != nil {
			return err
		}
	}
	r := o.result(file.Path, report, list, targets)
	return o.output.Print(c.OutOrStdout(), r.DrainResult, func(w io.Writer) error { return show.Drains(w, &r.DrainResult, time.Now(), o.output.Paint) })
}

// listed returns the list in force, or the one of the file.
func (o *drainOptions) listed(file drain.File, report *model.Drains) (drain.List, error) {
	if report == nil {
		return file.Read()
	}
	return drain.ListOf(report.Drained)
}

// waiter says what it waits for.
type waiter struct {
	names string // of the targets

	mu   sync.Mutex
	open api.OpenCount
}

// wait returns nil when no connection is open.
func (w *waiter) wait(ctx context.Context, targets []conntrack.Target) error {
	err := conntrack.Await(ctx, targets, func(counts []conntrack.Open) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open = sum(counts)
	})
	if err != nil && ctx.Err() != nil {
		return cli.Exit{Code: cli.CodeNo, Err: fmt.Errorf("connections are still open: %s to %s; the drain goes on, and \"nftproxy drain\" shows it", w.open.Text(), w.names)}
	}
	return err
}

// text returns the line that is shown on a terminal.
func (w *waiter) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return "waiting for the end of connections to " + w.names + ": " + w.open.Text()
}
