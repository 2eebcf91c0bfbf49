package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/feature/table/editors"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// running has the facts that a plan takes over from the nftproxy that runs here, so that it
// shows the changes of the input and nothing else.
type running struct {
	Finder
	name   string     // of the one that answers
	basis  *api.Basis // nil: none answers
	reason error      // why none does
	taken  []string   // in words
	Stays  report.Staying
}

// namedEndpoints is how many endpoints a message names.
const namedEndpoints = 3

// find asks the running nftproxy.
func (r *running) find(ctx context.Context) error {
	r.Acts = true
	r.reason = r.Ask(func(client *api.Client) error {
		b, err := client.Basis(ctx)
		if err != nil {
			return err
		}
		if b.Version != api.BasisVersion {
			return fmt.Errorf("%w at %s that this version understands: its answer has version %d", api.ErrNoDaemon, client.Name(), b.Version)
		}
		r.name, r.basis = client.Name(), b
		return nil
	})
	if r.reason != nil && !errors.Is(r.reason, api.ErrNoDaemon) {
		return r.reason
	}
	return nil
}

// followRunning asks the running nftproxy, and sets the flags that are not given to its
// settings.
func (o *Options) followRunning(ctx context.Context) (unknown []string, err error) {
	r := &o.Running
	if err := r.find(ctx); err != nil || r.basis == nil {
		return nil, err
	}
	r.taken, unknown, err = o.Settings.Follow(r.basis.Settings)
	if err != nil {
		err = fmt.Errorf("follow the running nftproxy at %s: %w", r.name, err)
	}
	return unknown, err
}

// warnOf logs settings of the running nftproxy that the plan cannot follow.
func (o *Options) warnOf(log *slog.Logger, unknown []string, from origin) {
	b := o.Running.basis
	runs := func(p host.Process) bool {
		flags, _ := runFlagsOf(p)
		return flags != nil && p.CheckControl() == nil
	}
	switch {
	case b == nil && slices.ContainsFunc(daemons(), runs):
		log.Warn("a running nftproxy does not say what its rules follow from: its flags, health checks and isolated files are not known here",
			"reason", OneLine(o.Running.reason))
	case b == nil:
	case len(unknown) > 0:
		log.Warn("the running nftproxy has settings that this version does not know", "flags", strings.Join(unknown, " "))
	case b.Cluster && !from.Cluster:
		log.Warn("the running nftproxy serves an API server as well, which is not compared: name it with --kubeconfig")
	case b.Files && !from.Files:
		log.Warn("the running nftproxy serves files as well, which are not compared: name them with -f")
	}
}

// inForce returns the files that the running nftproxy does not use as they are; nil: it does
// not isolate files, or a flag says whether to.
func (o *Options) inForce() []model.InForce {
	b := o.Running.basis
	if b == nil || !b.Isolates || o.Settings.Given(isolateFiles) && !o.IsolateFiles {
		return nil
	}
	return append([]model.InForce{}, b.InForce...) // not nil
}

// drained returns the endpoints that are drained here: as the running nftproxy says, unless
// a flag names another list.
func (o *Options) drained(log *slog.Logger, file string) (l drain.List, err error) {
	if b := o.Running.basis; b != nil && !o.Settings.Given(config.DrainFile) {
		if l, err = drain.ListOf(b.Drained); err != nil {
			return nil, fmt.Errorf("read the drained endpoints of the running nftproxy: %w", err)
		}
		var names []string
		for _, e := range l {
			names = append(names, e.Text(b.Words))
		}
		o.Running.took(names, "drained")
		return l, nil
	}
	if file == "" {
		return nil, nil
	}
	if l, err = (drain.File{Path: file}).Read(); err != nil {
		return nil, err
	}
	if n := len(l); n > 0 {
		log.Warn(fmt.Sprintf("%s drains %s on this machine: \"nftproxy drain\" lists them", file, terminal.Count(n, "endpoint")))
	}
	return l, nil
}

// edited returns the snapshot as the nftproxy that runs here edits it; one for another machine has less.
func (o *Options) edited(log *slog.Logger, s *model.Snapshot) (*model.Snapshot, error) {
	known := common.KnownOf(o.Running.basis)
	known.Drained, known.Changes = o.drains, o.changes
	if o.here {
		known.SetMachine(host.AddressesByInterface())
	}
	s, all, err := editors.Plan(s, &known)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		o.Running.took(p.Endpoints, p.State)
		switch {
		case p.Warning == "":
		case p.Names != nil:
			log.Warn(p.Warning, "names", strings.Join(p.Names, " "))
		default:
			log.Warn(p.Warning)
		}
	}
	checked := func(s *model.Service) bool { return s.Check != nil }
	if o.here && o.Running.basis == nil && slices.ContainsFunc(s.Services, checked) && hasTables() {
		log.Warn(s.Words().Text("no running nftproxy says which endpoints fail their health check: here, all of them count as healthy"))
	}
	return s, nil
}

func hasTables() (has bool) {
	_ = WithKernel(func(conn *kernel.Conn) error { // what follows needs the kernel, and has the error
		empty, err := conn.Empty()
		has = !empty
		return err
	})
	return has
}

// Result reports whether an endpoint of a Service fails its health check, as the running nftproxy says.
func (r *running) Result(name model.ServiceName, a netip.Addr) (failing model.CheckResult, fails bool) {
	return failing, r.basis != nil && slices.ContainsFunc(r.basis.Failing, func(f model.FailingCheck) bool {
		return f.ServiceName() == name && f.Endpoint.Addr() == a
	})
}

// keep takes over the Services that the running nftproxy keeps: those whose rules the kernel refuses, and
// as long as the input leaves out what may have them, those of an earlier run.
func (r *running) keep(leavesOut bool) {
	if r.basis == nil {
		return
	}
	refused := 0
	r.Stays = make(report.Staying)
	for _, k := range r.basis.Kept {
		if k.Refused || leavesOut {
			r.Stays[model.ServiceName{Namespace: k.Namespace, Name: k.Service}] = k.Refused
		}
		if k.Refused {
			refused++
		}
	}
	if kept := len(r.Stays) - refused; kept > 0 {
		r.taken = append(r.taken, fmt.Sprintf("%s kept from an earlier run", r.basis.Words.Count(kept, "Service")))
	}
	if refused > 0 {
		r.taken = append(r.taken, fmt.Sprintf("%s kept as before, because the kernel refuses what the source has", r.basis.Words.Count(refused, "Service")))
	}
}

// took notes endpoints that are treated as the running nftproxy does.
func (r *running) took(endpoints []string, how string) {
	if n := len(endpoints); n > 0 {
		names := strings.Join(endpoints[:min(n, namedEndpoints)], ", ")
		if n > namedEndpoints {
			names += ", ..."
		}
		r.taken = append(r.taken, fmt.Sprintf("%s %s (%s)", r.basis.Words.Count(n, "endpoint"), how, names))
	}
}

// LogTaken logs what was taken over.
func (r *running) LogTaken(ctx context.Context, log *slog.Logger) {
	if len(r.taken) > 0 {
		log.Log(ctx, levelNote, fmt.Sprintf("as the running nftproxy at %s: %s", r.name, strings.Join(r.taken, "; ")))
	}
}

// changed returns the servers that commands have changed here: as the running nftproxy says,
// unless a flag names a file, or else as the file has them.
func (o *Options) changed(own *config.Own) (drain.Changes, error) {
	if b := o.Running.basis; b != nil && !o.Settings.Given(config.DrainFile) && !o.Settings.Given(config.ChangesFile) {
		l, err := drain.ChangesOf(b.Changes)
		if err != nil {
			return nil, fmt.Errorf("read the runtime changes of the running nftproxy: %w", err)
		}
		return l, nil
	}
	return drain.ReadChanges(own.DrainFile, own.ChangesFile)
}
