// Package daemon is the process on a node. It prepares the machine, and wires
// the agent, which keeps the kernel in sync with a source, to what depends on its
// syncs: health checks, conntrack cleanup, metrics, events and status.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/control"
	"github.com/nftproxy/nftproxy/internal/events"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/footprint"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/metrics"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/source/join"
)

// Program is the command line that has started a daemon.
type Program interface {
	// Usable returns an error if the process could not start with the current content
	// of the configuration file.
	Usable() error
	Flags() map[string]string        // in effect, for /flagz
	SetVerbosity(level uint32) error // of the log
}

// Daemon is the process on a node.
type Daemon struct {
	Config *config.Config
	Program
	Source source.Source
	// Cluster is the API server that the source reads, and Joined the source if that reads
	// files, too; nil: there is none.
	Cluster *cluster.Cluster
	Joined  *join.Joined
	Events  events.Connect // nil: there is no API server
	// Condition writes the condition of the Node; nil: the Node gets none.
	Condition feature.Connect
	Version   string
	// Reload has a value when the source is to be read again without a known change.
	// Nil: never.
	Reload <-chan os.Signal
	// RuntimeDirectory is for what outlasts the process, and not the machine; empty: there
	// is none.
	RuntimeDirectory string
	// StateDirectory is for what outlasts a restart; empty: there is none.
	StateDirectory string
	// Isolation is the one of the source; nil: a mistake in a file concerns all of them.
	Isolation *files.Isolation
	// Sources are the absolute paths of the files that the source reads.
	Sources []string
	Log     *slog.Logger

	reads time.Time // when the source is read, if that was postponed
	// Node is what features know of this process.
	*feature.Node
	ports *conntrack.Ports // masqueraded connections

	socket *control.Socket // nil: none
	left   *footprint.Record
}

// hasFiles reports whether objects come from files, alone or beside an API server.
func (d *Daemon) hasFiles() bool { return d.Cluster == nil || d.Joined != nil }

// Init performs the preparations that need more privileges than serving (12.60).
func (d *Daemon) Init(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if d.Cluster != nil {
		go d.Cluster.RunNode(ctx)
	}
	_, err := d.prepare(ctx)
	if err == nil {
		d.prepareFeatures(ctx)
	}
	return err
}

// prepare waits for the Node, checks the kernel, and sets what connection tracking
// needs. It returns the families to serve.
func (d *Daemon) prepare(ctx context.Context) ([]model.Family, error) {
	d.left = footprint.Open(d.RuntimeDirectory, d.Log)
	if err := d.awaits("the Node", func() error { return d.Source.AwaitNode(ctx) }); err != nil {
		return nil, err
	}
	return d.prepareHost()
}

// Run serves until ctx ends, or until the configuration file has new, usable content.
// The rules stay in place then. It returns an error if the process cannot start or
// continue.
func (d *Daemon) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d.Config.File != nil {
		watch, err := watchConfig(d.Config.File, d.Program, d.Log)
		if err != nil {
			return err
		}
		go func() { cancel(watch.run(ctx)) }()
	}
	d.findSocket()
	changes := make(chan struct{}, 1)
	var requests *metrics.Requests
	if d.Cluster != nil {
		requests = metrics.CountRequests() // before the first of them
		d.postpone()
	}
	if j := d.Joined; j != nil {
		if j.Keep = hasRules(); j.Keep {
			d.Log.Info("the rules of an earlier run stay until the files and the API server have been read", "remove", "nftproxy cleanup")
		}
	}
	d.addFeatures(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cancel(d.Source.Run(ctx, func() { parallel.Signal(changes) }))
	}()
	defer d.awaitEnd(ended)
	defer cancel(nil)
	err := d.run(ctx, cancel, requests, changes)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause // the others ended because of it
	}
	return err
}

// endTime is how long the process waits at its end for the source and what edits it.
const endTime = 2 * time.Second

// awaitEnd waits until the source has ended, with the programs of health checks, which
// would outlive the process.
func (d *Daemon) awaitEnd(ended <-chan struct{}) {
	select {
	case <-ended:
	case <-time.After(endTime):
		d.Log.Warn("the source does not end; programs of health checks may still run", "after", endTime)
	}
}

func (d *Daemon) run(ctx context.Context, cancel context.CancelCauseFunc, requests *metrics.Requests, changes <-chan struct{}) (err error) {
	var owns bool
	var resume *agent.Record
	rules, openErr := kernel.Open()
	if openErr == nil {
		defer func() { err = errors.Join(err, rules.Close()) }()
		rules.Log = d.Log
		owns, resume, openErr = d.own(rules)
	}
	if openErr == nil {
		d.logStart(owns)
		defer d.logEnd(ctx)()
	}
	families, err := d.prepare(ctx) // its error is more helpful than openErr
	if err = cmp.Or(err, openErr); err != nil {
		return err
	}
	// Scrapes have a socket of their own, because they run concurrently with the agent.
	scrapes, err := kernel.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scrapes.Close()) }()

	w := d.newWork(ctx, families, sockets{rules: rules, owns: owns, resume: resume, scrapes: scrapes})
	if requests != nil {
		w.metrics.ExportRequests(requests)
	}
	wait := w.serve(ctx, cancel)
	defer wait()
	defer cancel(nil)
	if err := w.interfaces.Watch(ctx, w.node); err != nil {
		return err
	}
	if !owns {
		if w.watch(rules); w.watched != nil {
			defer w.watched.end()
		}
	}
	w.forward(ctx, changes)
	w.events.Starting()
	err = w.agent.Run(ctx)
	w.leaveRecord(rules)
	return err
}

// forward notifies the agent of changes of the source, and of requests to read it
// again, until ctx ends. Earlier changes do not matter: the agent has not read the
// source yet.
func (w *work) forward(ctx context.Context, changes <-chan struct{}) {
	select {
	case <-changes:
	default:
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-w.Reload:
				w.Log.Info("reading the source again", "reason", s.String()+" signal received")
				source.Reload(w.Source)
			case <-changes:
			}
			w.agent.Changed()
		}
	}()
}
