// Package join makes one source of files and an API server, for the addresses of the API servers themselves.
package join

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
)

// Joined is a [source.Source] of files and a [cluster.Cluster]. A Service belongs to one of them, with all of its
// EndpointSlices: the files have precedence (14.21). While one of them cannot be read, its last content is served.
type Joined struct {
	// Keep is set before Run if the kernel has rules of an earlier run. They stay until the cluster has been read,
	// and rules of Services that it does not have until the files have been. Otherwise the first source that can be
	// read is served alone until the other one follows (14.20).
	Keep bool

	files   source.Source
	cluster *cluster.Cluster
	log     *slog.Logger
	// known are closed once the source has been read, and filesTried once that was tried.
	filesKnown, clusterKnown, filesTried latch

	reading  sync.Mutex // held while files are read
	unusable error      // of the last attempt to read them

	joined atomic.Bool // Load has returned the objects of the cluster

	mu      sync.Mutex                     // guards what follows
	pending map[model.ServiceName]struct{} // changed in the files since the last Load
	// of, nodes and ranges are the objects of the files.
	of     map[model.ServiceName]model.ServiceState
	nodes  []*model.Node
	ranges []netip.Prefix
	// completed are the Services of the files that take endpoints of a Service of the
	// cluster, by the name of that: a change of the cluster costs what it changes.
	completed map[model.ServiceName]map[model.ServiceName]struct{}
	hidden    map[model.ServiceName]struct{} // Services of the cluster that files replace
}

// latch is a context that ends when something is known.
type latch struct {
	context.Context
	close context.CancelFunc
}

func newLatch() (l latch) {
	l.Context, l.close = context.WithCancel(context.Background())
	return l
}

func (l *latch) isClosed() bool { return l.Err() != nil }

// New returns a source of files, which [files.Follow] has returned, and a cluster. Through dialer, if it is not
// nil, the client of the cluster reaches the endpoints that the files name for its address.
func New(files source.Source, cluster *cluster.Cluster, dialer *cluster.Dialer) *Joined {
	j := &Joined{
		files: files, cluster: cluster, log: cluster.Log, filesKnown: newLatch(), clusterKnown: newLatch(), filesTried: newLatch(),
		of:        make(map[model.ServiceName]model.ServiceState),
		completed: make(map[model.ServiceName]map[model.ServiceName]struct{}),
		hidden:    make(map[model.ServiceName]struct{}),
		pending:   make(map[model.ServiceName]struct{}),
	}
	if dialer != nil {
		dialer.Follow(j)
	}
	return j
}

func (j *Joined) String() string { return j.files.String() + " and " + j.cluster.String() }

// Run implements [source.Source]. Its error is from either source: a watch that the
// kernel refuses, or a Node without the pod ranges on which the rules depend.
func (j *Joined) Run(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	j.readFiles() // before the cluster is dialed
	changed()
	var all sync.WaitGroup
	run := func(f func() error) {
		all.Go(func() {
			if err := f(); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	run(func() error {
		return j.files.Run(ctx, func() {
			j.readFiles()
			changed()
		})
	})
	run(func() error {
		return j.cluster.Run(ctx, func() {
			if j.clusterKnown.isClosed() {
				changed()
			}
		})
	})
	run(func() error {
		for _, wait := range []func(context.Context) error{j.cluster.AwaitNode, j.cluster.Await} {
			if err := wait(ctx); err != nil {
				return err
			}
		}
		j.clusterKnown.close()
		changed()
		return nil
	})
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Reload reads the files again. Load does not: most of its calls are for the cluster.
func (j *Joined) Reload() { j.readFiles() }

// readFiles reads the files, and notes what has changed. If they cannot be used, that
// is logged once for each reason, and again when they can.
func (j *Joined) readFiles() {
	j.reading.Lock()
	defer j.reading.Unlock()
	defer j.filesTried.close()
	u, err := j.files.Load()
	before := j.unusable
	j.unusable = err
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		j.log.Error(j.withoutFiles(), "error", err)
	case err == nil && before != nil:
		j.log.Info("the files can be used again")
	}
	if u == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for name, s := range u.Services {
		j.setFile(name, s)
		j.pending[name] = struct{}{}
	}
	j.nodes, j.ranges = u.Nodes, u.ServiceCIDRs
	if err == nil && !u.Partial || !j.Keep { // else rules of what cannot be read may be in the kernel
		j.filesKnown.close()
	}
}

// withoutFiles says which Services are served while the files cannot be used.
func (j *Joined) withoutFiles() string {
	switch {
	case j.filesKnown.isClosed():
		return "the files cannot be used; what they said before stays in use"
	case j.Keep:
		return "the files cannot be used, and were not read before; the rules of an earlier run for their Services stay, and the cluster is followed"
	}
	return "the files cannot be used, and were not read before; the cluster is served without them"
}

func (j *Joined) setFile(name model.ServiceName, s model.ServiceState) {
	if before := j.of[name].Service; before != nil && before.Extra().EndpointsFrom != nil {
		delete(j.completed[*before.Extra().EndpointsFrom], name)
	}
	if s.Service == nil {
		delete(j.of, name)
		return
	}
	s.Service = olderCopy(s.Service)
	j.of[name] = s
	if from := s.Service.Extra().EndpointsFrom; from != nil {
		if j.completed[*from] == nil {
			j.completed[*from] = make(map[model.ServiceName]struct{})
		}
		j.completed[*from][name] = struct{}{}
	}
}

// Complete reports whether Load has returned the objects of the cluster.
func (j *Joined) Complete() bool { return j.joined.Load() }

// AwaitNode implements [source.Source]: the files do not depend on the Node.
func (j *Joined) AwaitNode(context.Context) error { return nil }

func (j *Joined) Await(ctx context.Context) error {
	if j.Keep {
		for _, known := range []latch{j.filesTried, j.clusterKnown} {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-known.Done():
			}
		}
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-j.filesKnown.Done():
	case <-j.clusterKnown.Done():
	}
	return nil
}

func (j *Joined) Load() (*model.Update, error) {
	out := &model.Update{Services: make(map[model.ServiceName]model.ServiceState)}
	known := j.clusterKnown.isClosed()
	if known {
		var err error
		if out, err = j.cluster.Load(); err != nil {
			return nil, err
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if known {
		j.joined.Store(true)
	}
	for _, name := range j.affectedServices(out) {
		out.Services[name] = j.joinedState(name, known)
		if known {
			j.compare(name)
		}
	}
	j.pending = make(map[model.ServiceName]struct{})
	out.Partial = j.Keep && !j.filesKnown.isClosed()
	out.Nodes = joinNodes(j.nodes, out.Nodes)
	out.ServiceCIDRs = model.MergePrefixes(slices.Concat(j.ranges, out.ServiceCIDRs))
	return out, nil
}

func (j *Joined) Lookup(names []model.ServiceName) map[model.ServiceName]model.ServiceState {
	known := j.clusterKnown.isClosed()
	out := make(map[model.ServiceName]model.ServiceState, len(names))
	j.mu.Lock()
	defer j.mu.Unlock()
	if names == nil {
		if known {
			out = j.cluster.Lookup(nil)
		}
		names = slices.Collect(maps.Keys(j.of))
	}
	for _, name := range names {
		if s := j.joinedState(name, known); s.Service != nil {
			out[name] = s
		}
	}
	return out
}

// affectedServices returns the Services of an update of the cluster on which the files have an
// effect, and those that the files have changed.
func (j *Joined) affectedServices(u *model.Update) (names []model.ServiceName) {
	for name := range u.Services {
		if _, ours := j.of[name]; ours {
			names = append(names, name)
		}
		for of := range j.completed[name] {
			names = append(names, of)
		}
	}
	return slices.AppendSeq(names, maps.Keys(j.pending))
}

func (j *Joined) joinedState(name model.ServiceName, known bool) model.ServiceState {
	s, ours := j.of[name]
	switch {
	case !known:
		return s
	case !ours:
		return j.cluster.ServiceState(name)
	}
	return completeState(s, j.cluster.ServiceState)
}

func (j *Joined) compare(name model.ServiceName) {
	_, ours := j.of[name]
	_, before := j.hidden[name]
	switch both := ours && j.cluster.ServiceState(name).Service != nil; {
	case !both:
		delete(j.hidden, name)
	case !before:
		j.hidden[name] = struct{}{}
		j.cluster.ObjectLog.Warn("a Service of the cluster is not served: the files define it, too", "service", name)
	}
}

// Snapshots returns the snapshot of a [Joined] source of both, and a warning for each
// Service of the cluster that files replace.
func Snapshots(files, cluster *model.Snapshot) (out *model.Snapshot, warnings []string) {
	out = &model.Snapshot{
		Nodes:        joinNodes(files.Nodes, cluster.Nodes),
		ServiceCIDRs: model.MergePrefixes(slices.Concat(files.ServiceCIDRs, cluster.ServiceCIDRs)),
	}
	add := func(s model.ServiceState) {
		out.Services = append(out.Services, s.Service)
		out.Slices = append(out.Slices, s.Slices...)
	}
	ours, theirs := files.Update().Services, cluster.Update().Services
	for name, s := range ours {
		s.Service = olderCopy(s.Service)
		add(completeState(s, func(from model.ServiceName) model.ServiceState { return theirs[from] }))
		if _, both := theirs[name]; both {
			warnings = append(warnings, hiddenText(name))
		}
	}
	for name, s := range theirs {
		if _, both := ours[name]; !both {
			add(s)
		}
	}
	slices.Sort(warnings)
	return out, warnings
}

// olderCopy returns a Service of files whose claims precede claims of the cluster: an object
// of the cluster must not take an address of the files (4.39).
func olderCopy(s *model.Service) *model.Service {
	if s.Created != 0 {
		return s
	}
	first := *s
	first.Created = 1
	return &first
}

func hiddenText(name model.ServiceName) string {
	return fmt.Sprintf("Service %s of the cluster is not served: the files define it, too", name)
}

func joinNodes(files, cluster []*model.Node) []*model.Node {
	out := slices.Clone(files)
	for _, n := range cluster {
		if !slices.ContainsFunc(files, func(f *model.Node) bool { return f.Name == n.Name }) {
			out = append(out, n)
		}
	}
	return out
}

func (j *Joined) Node() *model.Node {
	if n := j.cluster.Node(); n != nil {
		return n
	}
	return j.files.Node()
}

// State implements [source.Source]: unusable if either source is.
func (j *Joined) State() source.State {
	files, cluster := j.files.State(), j.cluster.State()
	s := cluster
	if s.Err = cluster.Err; files.Err != nil {
		s.Err = errors.Join(fmt.Errorf("%s: %w", j.filesLabel(), files.Err), cluster.Err)
	}
	switch {
	case files.Err == nil && cluster.Err == nil:
		if files.Since.After(cluster.Since) {
			s.Since = files.Since
		}
	case cluster.Err == nil || files.Err != nil && files.Since.Before(cluster.Since):
		s.Since = files.Since
	}
	if files.LastSuccess.Before(s.LastSuccess) && files.Err != nil {
		s.LastSuccess = files.LastSuccess
	}
	s.Failures += files.Failures
	warnings := j.conflictTexts()
	s.Warned += files.Warned + len(warnings)
	s.Warnings = slices.Concat(files.Warnings, manifest.Shorten(warnings, manifest.MaxShown), s.Warnings)
	return s
}

// filesLabel names the files in an error, and says which content of them is served, unless it
// is the one from before.
func (j *Joined) filesLabel() string {
	switch {
	case j.filesKnown.isClosed():
		return "files"
	case j.Keep:
		return "files, not read since the start (rules of an earlier run for their Services stay)"
	}
	return "files, not read since the start (none of their Services is served)"
}

func (j *Joined) conflictTexts() (out []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, name := range slices.SortedFunc(maps.Keys(j.hidden), model.ServiceName.Compare) {
		out = append(out, hiddenText(name))
	}
	return out
}

// EndpointsFor returns where a Service of the files forwards connections to an address.
func (j *Joined) EndpointsFor(to netip.AddrPort) (out []netip.AddrPort) {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := j.clusterKnown.isClosed()
	for name, s := range j.of {
		if !s.Service.Serves(to.Addr()) {
			continue
		}
		for _, p := range s.Service.Ports {
			if p.Protocol != model.TCP || p.Port != to.Port() {
				continue
			}
			port := model.PortName{Service: name, Port: p.Name, Protocol: p.Protocol}
			for _, e := range model.Endpoints(port, model.FamilyOf(to.Addr()), j.joinedState(name, known).Slices) {
				if e.Host.Ready {
					out = append(out, e.Address())
				}
			}
		}
	}
	return out
}
