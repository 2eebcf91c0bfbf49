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
	Node  *feature.Node // knows which addresses are its frontends
	Log   *slog.Logger
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
	saved    error            // of the last attempt to write the state
	running  context.Context  // of Run; nil: it does not run
	changed  func(...model.ServiceName)
	objects  *slog.Logger

	unsaved chan struct{} // has a value when the state is to be written
	all     sync.WaitGroup
}

// entry is a name, which a goroutine of its own follows. The goroutine alone changes the records.
type entry struct {
	key
	users   map[model.ServiceName][]model.Family
	records []record
	own     ownRecords
	err     error     // of the last lookup, of all of it or of a part
	since   time.Time // when the first of the lookups ended that failed in a row
	fails   int       // so many
	dropped int       // addresses that are too many
	refused int       // addresses that no server can have

	stop   context.CancelFunc // ends the goroutine; nil: there is none
	again  chan struct{}      // has a value when a lookup is due
	review chan struct{}      // has a value when frontends may have changed
}

type service struct {
	given, edited model.ServiceState
	keys          []key
	stale         bool // edited is out of date
	tooMany       bool // names for this node
}

func NewEngine(c Config) *Engine {
	e := &Engine{Config: c, lookups: newLookups(), unsaved: make(chan struct{}, 1)}
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
		n = &entry{key: k, users: make(map[model.ServiceName][]model.Family), records: e.kept[k], again: make(chan struct{}, 1), review: make(chan struct{}, 1)}
		e.names[k] = n
		e.start(n)
	} else if before, known := n.users[by]; !known || !slices.Equal(before, families) {
		parallel.Signal(n.again) // there may be another family to ask for
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
	maps.DeleteFunc(n.own, func(o ownRecord, _ model.ServiceName) bool { return o.user == by })
	if len(n.users) == 0 {
		delete(e.names, k)
		delete(e.kept, k)
		parallel.Signal(e.unsaved)
		if n.stop != nil {
			n.stop()
		}
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
			if _, own := n.own[ownRecord{name, r.NamedAddress}]; !own && s.HasFamily(model.FamilyOf(r.Address)) {
				out[i] = append(out[i], r.NamedAddress)
			}
		}
	}
	return out
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
	e.mu.Lock()
	e.running, e.changed = ctx, changed
	for _, n := range e.names {
		e.start(n)
	}
	e.mu.Unlock()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-e.unsaved:
			e.save()
		}
	}
	e.mu.Lock()
	e.running = nil
	e.mu.Unlock()
	e.all.Wait()
	if len(e.unsaved) > 0 {
		e.save()
	}
}

// start begins to follow a name, unless Run does later.
func (e *Engine) start(n *entry) {
	if e.running == nil {
		return
	}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(e.running)
	e.all.Go(func() { e.followName(ctx, n) })
}

// followName looks a name up when that is due, until ctx ends.
func (e *Engine) followName(ctx context.Context, n *entry) {
	for due := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-n.review:
			e.note(n, e.ownOf(n, n.records), nil)
		case <-n.again:
			due = time.Now()
		case <-time.After(time.Until(due)):
			due = e.lookup(ctx, n)
		}
	}
}

// note notes which records of a name are frontends, and the result of a lookup; nil: there was none. It announces the
// Services for which the name is another one.
func (e *Engine) note(n *entry, own ownRecords, r *result) {
	e.mu.Lock()
	changed := r != nil && e.noteResult(n, *r)
	changed = !e.noteOwn(n, own) || changed
	var users []model.ServiceName
	if changed {
		users = e.usersOf(n)
	}
	e.mu.Unlock()
	if len(users) > 0 {
		e.changed(users...)
	}
}

const resolvConf = "/etc/resolv.conf"

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
	if len(s.Routes) == 0 && !s.Compared {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.names {
		parallel.Signal(n.review)
	}
}

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
