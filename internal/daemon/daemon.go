// Package daemon is the process on a node: it prepares the machine, keeps the
// rules up to date, and answers whoever asks how that goes.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
)

// Source is where the objects come from.
type Source struct {
	// Name says it to people.
	Name string
	// AwaitNode returns when the Node is known as far as the start depends on
	// it (12.45 to 12.47); nil: at once.
	AwaitNode func(context.Context) error
	// Await returns when Load may be called; nil: at once.
	Await func(context.Context) error
	Load  func() (*model.Update, error)
	// Watch follows the objects until ctx ends and calls changed when Load
	// returns something else.
	Watch func(ctx context.Context, changed func()) error
	// Node returns the Node as it was seen last, or nil.
	Node func() *model.Node
	// Counts and Events are nil where there is no API server.
	Counts func() source.Counts
	Events eventsv1client.EventsV1Interface
}

// Daemon is what a process on a node is made of.
type Daemon struct {
	Config  *config.Config
	Source  Source
	Version string
	// Flags returns the flags in effect, for /flagz.
	Flags func() map[string]string
	// SetVerbosity changes the level of detail in the log.
	SetVerbosity func(level uint32) error
	Log          *slog.Logger

	requests *metrics.Requests // to the API server; nil: there is none
}

// Init does what needs more privileges than serving does, and ends (12.60): it
// waits for the Node, checks the kernel, and sets what connection tracking
// needs.
func (d *Daemon) Init(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = d.Source.Watch(ctx, func() {}) }()
	_, err := d.prepare(ctx)
	return err
}

// prepare brings the machine to where serving can begin. It returns the
// families to serve.
func (d *Daemon) prepare(ctx context.Context) ([]model.Family, error) {
	if d.Source.AwaitNode != nil {
		if err := d.Source.AwaitNode(ctx); err != nil {
			return nil, err
		}
	}
	return d.prepareHost()
}

// Run serves until ctx ends. The rules stay in place then. It returns an error
// if the process cannot start, or cannot go on.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d.Source.Counts != nil {
		d.requests = metrics.CountRequests() // before the first of them
	}
	var a atomic.Pointer[agent.Agent]
	changed := func() {
		if a := a.Load(); a != nil { // before, there is nobody who could miss it
			a.Changed()
		}
	}
	go func() { cancel(d.Source.Watch(ctx, changed)) }()
	err := d.run(ctx, cancel, &a)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause // which made the rest end, too
	}
	return err
}

func (d *Daemon) run(ctx context.Context, cancel context.CancelCauseFunc, running *atomic.Pointer[agent.Agent]) (err error) {
	var owns bool
	rules, openErr := kernel.Open()
	if openErr == nil {
		defer func() { err = errors.Join(err, rules.Close()) }()
		rules.Log = d.Log
		owns, openErr = d.own(rules)
	}
	families, err := d.prepare(ctx) // knows better what an error means
	if err = cmp.Or(err, openErr); err != nil {
		return err
	}
	// Scrapes come while the agent is at work: they have a socket of their own.
	asking, err := kernel.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, asking.Close()) }()

	w := d.newWork(ctx, families, rules, asking)
	a := agent.New(w.agentConfig(rules))
	if owns {
		w.applier.Claim = rules.Claim
	} else {
		w.watch(ctx, rules, a)
	}
	running.Store(a)
	wait := w.serve(ctx, cancel, a)
	defer wait()
	defer cancel(nil)
	if err := w.interfaces.Watch(ctx, w.node); err != nil {
		return err
	}
	w.events.Starting()
	return a.Run(ctx)
}
