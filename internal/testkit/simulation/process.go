package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/vitals"
	"github.com/nftproxy/nftproxy/internal/health"
	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Machine is what outlives a process.
type Machine struct {
	Tables *Tables
	Flows  *Flows
	Links  *Links

	objects   objects
	addresses []netip.Addr // of interfaces that serve NodePorts
	directory string       // of the runtime
	aside     string       // where its content is while it takes no file; empty: in its place
	begun     time.Time
	record    []byte // of the rules of the process before
	older     []byte // of an earlier one
	log       *slog.Logger
}

// settings are what an operator gives a process.
type settings struct {
	Node          model.Config
	NoOwner       bool
	MinSyncPeriod time.Duration
	Upgraded      bool // it is another program than the one before
}

// process is the parts of a process on a node, connected as package daemon connects them.
type process struct {
	machine    *Machine
	settings   settings
	conn       *Conn
	agent      *agent.Agent
	feed       *feed
	cleaner    *conntrack.Cleaner
	interfaces *host.Interfaces
	owns       bool
	directory  string

	cancel  context.CancelFunc
	ended   chan struct{}
	crashed atomic.Bool
	over    atomic.Bool // it must not do anything any more
	cut     atomic.Bool // it has ended in the middle of its changes of addresses, and is to be killed
	failure error       // of the last sync; only while all goroutines wait
	err     error       // of its end
}

// start starts a process.
func (m *Machine) start(s settings) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{machine: m, settings: s, cancel: cancel, ended: make(chan struct{}), directory: m.directory}
	p.conn = m.Tables.Connect(p.crash)
	p.feed = &feed{objects: &m.objects}
	resume := p.own()
	p.interfaces = host.NewInterfaces(listed(func() ([]netip.Addr, error) { return m.addresses, nil }), m.log)
	p.cleaner = conntrack.New(m.Flows.Of(p.over.Load), conntrack.Config{Log: m.log, Rules: p})
	applier := apply.New(p.conn, m.log)
	applier.Owns, applier.Shared = p.owns, !p.owns
	p.agent = agent.New(agent.Config{
		Source: p.feed, Node: s.Node, Interfaces: p.interfaces, Applier: applier, Resume: resume, Affinity: p,
		MinSyncPeriod: s.MinSyncPeriod, Syncing: p.cleaner.Still(), Log: m.log,
	})
	p.run(ctx)
	return p
}

// Owner implements [conntrack.Rules].
func (p *process) Owner(f model.Frontend) (model.Frontend, bool) { return p.agent.Owner(f) }

// AffinityUse implements [agent.Affinity].
func (p *process) AffinityUse() ([]kernel.AffinityUse, error) { return nil, nil }

// run runs the parts until ctx ends.
func (p *process) run(ctx context.Context) {
	node := &feature.Node{Config: &config.Config{}, Files: true, RuntimeDirectory: p.directory, Log: p.machine.log}
	node.Config.Own.AnnounceInterval = time.Minute
	acting := vitals.Kind{Links: p.machine.Links.Of(p.over.Load, &p.cut)}.New(node)
	node.Features = []feature.Feature{acting}
	node.Serve(serving{p.agent, p})
	p.agent.Observers = append(p.agent.Observers, func(s *agent.Sync) {
		if p.failure = s.Err; s.Err == nil {
			p.cleaner.Change(s.Routes, s.Router.NodePortAddresses())
		}
		acting.(feature.Observer).FollowSync(&feature.Sync{Routes: s.Routes, Compared: s.Compared, Complete: true, Err: s.Err})
	})
	changes := make(chan struct{}, 1)
	var all sync.WaitGroup
	all.Go(func() { _ = p.feed.Run(ctx, func() { parallel.Signal(changes) }) })
	all.Go(func() { p.cleaner.Run(ctx) })
	all.Go(func() { acting.(feature.Runner).Run(ctx) })
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changes:
				p.agent.Changed()
			}
		}
	})
	if !p.owns {
		p.conn.Watch(p.agent.Drifted)
	}
	go func() {
		defer close(p.ended)
		p.err = p.agent.Run(ctx)
		if !p.over.Load() {
			p.leaveRecord()
		}
		p.cancel()
		all.Wait()
	}()
}

// crash ends the process in the middle of what it does. Nothing that it does later has an effect.
func (p *process) crash() {
	p.crashed.Store(true)
	p.over.Store(true)
	p.machine.keepDirectory()
	p.cancel()
}

// kill is a crash from outside.
func (p *process) kill() {
	p.conn.End()
	p.crash()
}

// stop ends the process in order.
func (p *process) stop() {
	p.cancel()
	<-p.ended
	p.over.Store(true)
	p.conn.End()
}

// keepDirectory makes the next process find the files as they are now: one that crashes may still write.
func (m *Machine) keepDirectory() {
	m.emptyDirectory()
	next, err := os.MkdirTemp(os.TempDir(), "runtime")
	if err == nil {
		err = os.CopyFS(next, os.DirFS(m.directory))
	}
	if err != nil {
		panic(err)
	}
	m.directory = next
}

// fillDirectory makes the runtime directory take no file: another file has its name.
func (m *Machine) fillDirectory() {
	if m.aside != "" {
		return
	}
	m.aside = m.directory + ".aside"
	if err := errors.Join(os.Rename(m.directory, m.aside), os.WriteFile(m.directory, nil, 0o600)); err != nil {
		panic(err)
	}
}

// emptyDirectory ends [Machine.fillDirectory].
func (m *Machine) emptyDirectory() {
	if m.aside == "" {
		return
	}
	if err := errors.Join(os.Remove(m.directory), os.Rename(m.aside, m.directory)); err != nil {
		panic(err)
	}
	m.aside = ""
}

// spoilRecord changes what a process has left for the next one: it is half written, or was left by another one, or the
// clock of the machine has jumped forward or backward since.
func (m *Machine) spoilRecord(dice *rand.Rand) {
	half := func(data []byte) []byte { return data[:dice.IntN(len(data)+1)] }
	switch dice.IntN(4) {
	case 0:
		m.record = half(m.record)
	case 1:
		m.record, m.older = m.older, m.record
	case 2:
		m.begun = m.begun.Add(time.Duration(dice.IntN(200)-100) * time.Hour)
	case 3:
		path := vitals.RecordIn(m.directory)
		if data, err := os.ReadFile(path); err == nil {
			if err := os.WriteFile(path, half(data), 0o600); err != nil {
				panic(err)
			}
		}
	}
}

// storedRecord is the record as its file has it.
type storedRecord struct {
	agent.Record
	Program int
}

func (m *Machine) now() kernel.Moment { return kernel.Moment(time.Since(m.begun) + time.Hour) }

// own takes over the tables, and returns the record of them if it still holds.
func (p *process) own() *agent.Record {
	last := p.lastRecord()
	if !p.settings.NoOwner {
		p.owns = p.conn.Own()
	}
	if !p.owns {
		if generation, _ := p.conn.Generation(); last == nil || generation != last.Generation {
			return nil
		}
		return last
	}
	if last != nil && p.conn.Reclaim(last.Generation) {
		return last
	}
	_, _ = p.conn.Claim() // the first sync tries again
	return nil
}

func (p *process) lastRecord() *agent.Record {
	data := p.machine.record
	if p.machine.record = nil; len(data) > 0 {
		p.machine.older = data
	}
	r := new(storedRecord)
	if len(data) == 0 || json.Unmarshal(data, r) != nil || !r.Made.Distinguishes(p.machine.now()) {
		return nil
	}
	if p.settings.Upgraded {
		r.Objects = nil
	}
	return &r.Record
}

// leaveRecord leaves the record for the next process.
func (p *process) leaveRecord() {
	r := p.agent.Record()
	if r == nil {
		return
	}
	stored := storedRecord{Record: *r}
	stored.Made = p.machine.now()
	var err error
	if stored.Generation, err = p.conn.Generation(); err != nil {
		return
	}
	p.machine.record, _ = json.Marshal(stored) // as JSON can have it
}

// serving is what features may ask of the process.
type serving struct {
	*agent.Agent
	process *process
}

func (s serving) Words() words.Vocabulary               { return words.Balance }
func (s serving) Filters(model.Family) []string         { return nil }
func (s serving) Begun() bool                           { return !s.State().LastSync.IsZero() }
func (s serving) Families() []model.Family              { return model.Families[:] }
func (s serving) Programmed() (health.Programmed, bool) { return health.Programmed{}, false }

// listed are the addresses of interfaces.
type listed func() ([]netip.Addr, error)

func (l listed) ServingAddresses() ([]netip.Addr, error) { return l() }
