// Package names follows the names of DNS by which Services of files know their servers. An
// [Engine] is an editor of a source: it gives each Service the addresses that its names have as
// endpoints, obeys the TTL of answers, and keeps the last good answer of a name through
// failures and restarts.
package names

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/hostsfile"
	"github.com/nftproxy/nftproxy/internal/loglimit"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// Config has the settings of an engine.
type Config struct {
	// Servers are asked, in this order; none: the ones of the file ResolvConf.
	Servers    []netip.AddrPort
	ResolvConf string
	// HostsFile is only named in problems: as the reason why other programs find a name. Empty: none.
	HostsFile string
	Timeout   time.Duration // of a question to one server
	// MinTTL and MaxTTL bound the time until a name is looked up again.
	MinTTL, MaxTTL time.Duration
	// State is the file with the last good answers, for the next start; empty: none.
	State string
	// Node knows which addresses are frontends of this node; nil: none is.
	Node *feature.Node
	Log  *slog.Logger
}

// Engine follows the names of Services. While no Service has a name it holds no memory, and Run
// does nothing. Its methods are safe for concurrent use.
type Engine struct {
	Config
	client  client
	lookups *prometheus.CounterVec // by result

	mu       sync.Mutex // guards what follows
	names    map[key]*entry
	services map[model.ServiceName]*service
	kept     map[key][]record // of the previous process; nil: not read yet
	unsaved  bool
	saved    error // of the last attempt to write the state
	wakeAt   time.Time
	objects  *slog.Logger

	wake   chan struct{}
	review chan struct{} // has a value when frontends may have changed
	all    sync.WaitGroup
}

type entry struct {
	key
	users   map[model.ServiceName][]model.Family
	records []record
	own     ownRecords
	due     time.Time // of the next lookup
	running bool
	again   bool // another lookup is due when the one that runs has ended
	status  Status
	fails   int // in a row
}

type service struct {
	given, edited model.ServiceState
	keys          []key
	stale         bool // edited is out of date
	tooMany       bool // names for this node
}

// NewEngine returns an engine without names.
func NewEngine(c Config) *Engine {
	e := &Engine{Config: c, lookups: newLookups(), wake: make(chan struct{}, 1), review: make(chan struct{}, 1)}
	e.client = client{timeout: c.Timeout, room: make(chan struct{}, budget.NameQueries)}
	e.client.servers.conf.servers = c.Servers
	if len(c.Servers) == 0 {
		e.client.servers.path = c.ResolvConf
	}
	e.objects = loglimit.New(c.Log)
	return e
}

// Edit implements the interface of editors: it returns the state with the addresses of the names.
func (e *Engine) Edit(name model.ServiceName, state model.ServiceState) model.ServiceState {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.services[name]
	if state.Service == nil || len(state.Service.Extra().Names) == 0 {
		if s != nil {
			e.follow(name, s, nil)
			delete(e.services, name)
		}
		return state
	}
	if s == nil {
		if s = new(service); e.services == nil {
			e.services, e.names = make(map[model.ServiceName]*service), make(map[key]*entry)
			e.readState()
		}
		e.services[name] = s
	}
	if s.given.Service != state.Service {
		e.follow(name, s, state.Service)
		s.stale = true
	}
	if s.stale || !slices.Equal(s.given.Slices, state.Slices) {
		s.given, s.stale = state, false
		s.edited = state.WithNames(e.addresses(name, state.Service))
	}
	return s.edited
}

// follow makes a Service, which may be nil, the user of its names, and of no others.
func (e *Engine) follow(name model.ServiceName, s *service, now *model.Service) {
	before := s.keys
	s.keys, s.tooMany = nil, false
	if now != nil {
		families := slices.DeleteFunc(slices.Clone(model.Families[:]), func(f model.Family) bool { return !now.HasFamily(f) })
		for _, n := range now.Extra().Names {
			if k := keyOf(&n); e.use(k, name, families) {
				s.keys = append(s.keys, k)
			} else {
				s.tooMany = true
			}
		}
	}
	for _, k := range before {
		if !slices.Contains(s.keys, k) {
			e.release(k, name)
		}
	}
}

func keyOf(n *model.NamedServer) key { return key{n.Name, n.Records} }

// use makes a Service a user of a name; false: there are too many.
func (e *Engine) use(k key, by model.ServiceName, families []model.Family) bool {
	n := e.names[k]
	if n == nil {
		if len(e.names) >= budget.Names {
			return false
		}
		n = &entry{key: k, users: make(map[model.ServiceName][]model.Family), records: e.kept[k]}
		n.status.Kept = len(n.records) > 0
		e.names[k] = n
	}
	if before, known := n.users[by]; !known || !slices.Equal(before, families) {
		n.due, n.again = time.Time{}, n.running // there may be another family to ask for
		e.wakeFor(n.due)
	}
	n.users[by] = families
	return true
}

// release ends the use of a name, and forgets it after the last one.
func (e *Engine) release(k key, by model.ServiceName) {
	n := e.names[k]
	if n == nil {
		return
	}
	delete(n.users, by)
	delete(n.own, by)
	if len(n.users) == 0 {
		delete(e.names, k)
		delete(e.kept, k)
		e.unsaved = true
		e.wakeFor(time.Time{})
	}
}

// families returns the families that a user of the name listens in.
func (n *entry) families() (out []model.Family) {
	for _, f := range model.Families {
		for _, of := range n.users {
			if slices.Contains(of, f) {
				out = append(out, f)
				break
			}
		}
	}
	return out
}

// addresses returns the addresses of the names of a Service, without those that are frontends
// of this node.
func (e *Engine) addresses(name model.ServiceName, s *model.Service) [][]model.NamedAddress {
	out := make([][]model.NamedAddress, len(s.Extra().Names))
	for i := range s.Extra().Names {
		n := e.names[keyOf(&s.Extra().Names[i])]
		if n == nil {
			continue
		}
		for _, r := range n.records {
			if _, own := n.own[name][r.NamedAddress]; !own && s.HasFamily(model.FamilyOf(r.Address)) {
				out[i] = append(out[i], r.NamedAddress)
			}
		}
	}
	return out
}

// Synced tells the engine that frontends of this node may have changed: a name may have one of
// their addresses, or no longer. It does not block.
func (e *Engine) Synced() {
	e.mu.Lock()
	follows := len(e.names) > 0
	e.mu.Unlock()
	if !follows {
		return
	}
	parallel.Signal(e.review)
}

// wakeFor wakes Run if it would wake later.
func (e *Engine) wakeFor(at time.Time) {
	if e.wakeAt.IsZero() || at.Before(e.wakeAt) {
		e.wakeAt = at
		parallel.Signal(e.wake)
	}
}

// usersOf returns the Services with a name, and makes their edited states out of date.
func (e *Engine) usersOf(n *entry) []model.ServiceName {
	for name := range n.users {
		if s := e.services[name]; s != nil {
			s.stale = true
		}
	}
	return slices.Collect(maps.Keys(n.users))
}

// Run looks names up until ctx ends.
func (e *Engine) Run(ctx context.Context, changed func(...model.ServiceName)) {
	defer e.all.Wait()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		if next := e.step(ctx, time.Now(), changed); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			e.save()
			return
		case <-e.review:
			e.reviewAll(changed)
		case <-e.wake:
		case <-timer.C:
		}
	}
}

// step begins the lookups that are due, and returns when the next one is.
func (e *Engine) step(ctx context.Context, now time.Time, changed func(...model.ServiceName)) (next time.Time) {
	e.save()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.names {
		switch {
		case n.running:
		case !n.due.After(now):
			n.running = true
			families, before := n.families(), n.records
			e.all.Go(func() { e.lookup(ctx, n, families, before, changed) })
		case next.IsZero() || n.due.Before(next):
			next = n.due
		}
	}
	e.wakeAt = next
	return next
}

// resolvConf names the servers of DNS of this machine.
const resolvConf = "/etc/resolv.conf"

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind]. Only files have names of servers: an author of Services of an API server could make every node
// ask for any name.
func (Kind) New(n *feature.Node) feature.Feature {
	if !n.Files {
		return nil
	}
	own := &n.Config.Own
	c := Config{
		Servers: own.NameServers(), ResolvConf: resolvConf, HostsFile: hostsfile.Path, Timeout: own.DNSTimeout, MinTTL: own.DNSMinTTL, MaxTTL: own.DNSMaxTTL,
		Node: n, Log: n.Log,
	}
	if directory := cmp.Or(n.StateDirectory, n.RuntimeDirectory); directory != "" {
		c.State = filepath.Join(directory, FileName)
	}
	return NewEngine(c)
}

// FollowSync implements [feature.Observer]: a name may have an address of a frontend, or no longer.
func (e *Engine) FollowSync(s *feature.Sync) {
	if len(s.Routes) > 0 || s.Compared {
		e.Synced()
	}
}

// Collectors implements [feature.Counter].
func (e *Engine) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		e.lookups,
		feature.Gauge("nftproxy_names", "Names of servers that are looked up in DNS.", func() float64 {
			all, _ := e.Counts()
			return float64(all)
		}),
		feature.Gauge("nftproxy_names_failing", "Names of servers whose last lookup failed; their last addresses stay.", func() float64 {
			_, failing := e.Counts()
			return float64(failing)
		}),
	}
}

func newLookups() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nftproxy_name_lookups_total", Help: "Lookups of names of servers by result: found, or failed.",
	}, []string{"result"})
}

// Leaves implements [feature.Leaver].
func (Kind) Leaves() []feature.Leftover {
	return []feature.Leftover{{
		Name: "names", What: "`names.json` in the runtime directory, without a state directory: the last answers of DNS",
		Mark:     "its name",
		Restored: "written with the next answer",
		Removed:  "`cleanup`",
		Writers:  []string{"internal/feature/names/kept.go"},
		Remove:   func(s feature.Scope) ([]string, error) { return feature.RemoveFile(s.Runtime, FileName) },
	}}
}
