package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// series is one operation, done as often as there are samples.
type series struct {
	Operation results.Operation
	Seconds   []float64
	Work      *results.Work
	Memory    *results.Memory
}

// repeats is how often each change is made in one run.
type repeats struct {
	Each   int // of the same kind
	Random int // changes of mixed kinds
}

var usualRepeats = repeats{Each: 200, Random: 1000}

// measurer takes one scenario through all operations, in a namespace.
type measurer struct {
	ns      *netlab.Namespace
	world   *world
	node    *node
	found   []series
	started uint64 // resident memory after the restart
	// left is the record of the last node, for the next one.
	left *agent.Record
	// transactions is how many the kernel should have seen.
	transactions int
	others       []*netlab.Namespace // of kernelAlone
}

// measure does all operations once over. The process should be a new one: its
// memory is measured.
func measure(s scenario, n repeats) (found []series, err error) {
	ns, err := netlab.NewNamespace()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	m := &measurer{ns: ns, world: newWorld(s)}
	defer m.closeOthers()
	first, err := ns.Generation()
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		m.kernelAlone,
		m.coldStart,
		m.resume,
		m.restart,
		func() error { return m.allChanges(n) },
		m.memory,
		m.stop,
		func() error { return m.checkGeneration(first) },
		func() error { return verify(ns, m.world) },
	} {
		if err := step(); err != nil {
			if m.node != nil {
				_ = m.stop()
			}
			return nil, fmt.Errorf("%s: %w", s, err)
		}
	}
	return m.found, nil
}

func (m *measurer) stop() error {
	n := m.node
	m.node = nil
	return n.stop()
}

// coldStart fills the empty kernel.
func (m *measurer) coldStart() error {
	debug.FreeOSMemory() // garbage of building the world
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the peak of memory: %w", err)
	}
	err := m.start(results.ColdStart, func(_ int, o outcome) error {
		if o.changes < m.world.Services*m.world.Endpoints {
			return fmt.Errorf("%d changes for %d services of %d endpoints", o.changes, m.world.Services, m.world.Endpoints)
		}
		return nil
	})
	if err != nil {
		return err
	}
	use, err := results.MemoryOf(os.Getpid())
	m.found[len(m.found)-1].Memory = &use
	n := m.node
	err = errors.Join(err, n.end())
	m.left = n.agent.Record()
	debug.FreeOSMemory()
	return errors.Join(err, m.stop())
}

// resume begins again with the same Services and what the cold start has left.
func (m *measurer) resume() error {
	if m.left == nil {
		return errors.New("the start has left no record")
	}
	err := m.start(results.Resume, func(_ int, o outcome) error {
		if o.transactions != 0 || m.node.read {
			return fmt.Errorf("%d transactions, the rules were read: %t", o.transactions, m.node.read)
		}
		return nil
	})
	if err == nil {
		err = m.stop()
	}
	m.left = nil
	return err
}

// restart begins again with the same Services. The node goes on from there.
func (m *measurer) restart() error {
	before, err := m.ns.Generation()
	if err != nil {
		return err
	}
	err = m.start(results.Restart, func(_ int, o outcome) error {
		if o.transactions != 0 {
			return fmt.Errorf("%d transactions, want none", o.transactions)
		}
		return nil
	})
	if err != nil {
		return err
	}
	after, err := m.ns.Generation()
	if err == nil && after != before {
		err = fmt.Errorf("%s: the generation of the rules went from %d to %d", results.Restart, before, after)
	}
	if err != nil {
		return err
	}
	use, err := results.MemoryOf(os.Getpid())
	m.started = use.Resident
	return err
}

// start starts a node with all Services, and returns memory to the OS like the
// daemon does after a full comparison.
func (m *measurer) start(op results.Operation, check func(i int, o outcome) error) error {
	var err error
	if m.node, err = newNode(m.ns, m.left); err != nil {
		return err
	}
	all := m.world.snapshot()
	err = m.record(op, 1, func(int) (outcome, time.Duration, error) { return m.node.start(all) }, func(i int, o outcome) error {
		if !o.compared {
			return fmt.Errorf("not everything was compared")
		}
		return check(i, o)
	})
	m.node.next = nil
	debug.FreeOSMemory()
	return err
}

// allChanges makes changes of each kind, and of mixed kinds.
func (m *measurer) allChanges(n repeats) error {
	if n == (repeats{}) {
		return nil
	}
	each := min(n.Each, m.world.Services/4)
	if err := errors.Join(m.kernelAloneReplaces(each), m.changes(each)); err != nil {
		return err
	}
	return m.randomChanges(n.Random)
}

// changes makes n changes of each kind, each of another service.
func (m *measurer) changes(n int) error {
	c := newChanger(m.world)
	var replace []*model.Update
	var frontends []int
	for _, i := range c.choose(n) {
		replace = append(replace, c.replaceEndpoint(i))
		frontends = append(frontends, c.frontends(i))
	}
	// With affinity the new endpoint becomes one of the frontend before, and the
	// old one is one until afterwards.
	oneElementEach := func(i int, o outcome) error {
		if o.changes != frontends[i] && o.changes != 3*frontends[i] || o.transactions*frontends[i] != o.changes {
			return fmt.Errorf("%d changes in %d transactions, want %d in 1, or with affinity in each of 3", o.changes, o.transactions, frontends[i])
		}
		return nil
	}
	up, down := pairs(c.choose(n), c.scale)
	del, add := pairs(c.choose(n), c.replaceService)
	for _, step := range []struct {
		operation results.Operation
		updates   []*model.Update
		check     func(i int, o outcome) error
	}{
		{results.ReplaceEndpoint, replace, oneElementEach},
		{results.ScaleUp, up, something},
		{results.ScaleDown, down, something},
		{results.DeleteService, del, something},
		{results.AddService, add, something},
	} {
		if err := m.apply(step.operation, step.updates, step.check); err != nil {
			return err
		}
	}
	return nil
}

// pairs returns changes of services, and what takes them back.
func pairs(services []int, change func(i int) (do, undo *model.Update)) (do, undo []*model.Update) {
	for _, i := range services {
		a, b := change(i)
		do, undo = append(do, a), append(undo, b)
	}
	return do, undo
}

// randomChanges makes n changes of mixed kinds.
func (m *measurer) randomChanges(n int) error {
	c := newChanger(m.world)
	var all []*model.Update
	for range n {
		all = append(all, c.randomChange())
	}
	return m.apply(results.RandomChange, all, anything)
}

func something(_ int, o outcome) error {
	if o.changes == 0 {
		return fmt.Errorf("nothing was changed")
	}
	return nil
}

// anything is right for a change of endpoints that do not count.
func anything(int, outcome) error { return nil }

// apply brings updates to the node, one after the other.
func (m *measurer) apply(op results.Operation, updates []*model.Update, check func(i int, o outcome) error) error {
	return m.record(op, len(updates), func(i int) (outcome, time.Duration, error) { return m.node.change(updates[i]) }, func(i int, o outcome) error {
		if o.compared {
			return fmt.Errorf("everything was compared for one change")
		}
		return check(i, o)
	})
}

// record does an operation n times and notes what that took.
func (m *measurer) record(op results.Operation, n int, do func(i int) (outcome, time.Duration, error), check func(i int, o outcome) error) error {
	s := series{Operation: op, Work: &results.Work{}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range n {
		o, took, err := do(i)
		if err == nil {
			err = check(i, o)
		}
		if err != nil {
			return fmt.Errorf("%s, number %d: %w", op, i+1, err)
		}
		s.Seconds = append(s.Seconds, took.Seconds())
		s.Work.Changes += float64(o.changes) / float64(n)
		s.Work.Transactions += float64(o.transactions) / float64(n)
		s.Work.NetlinkBytes += float64(o.bytes) / float64(n)
		m.transactions += o.transactions
	}
	runtime.ReadMemStats(&after)
	s.Work.Allocations = float64(after.Mallocs-before.Mallocs) / float64(n)
	s.Work.AllocatedBytes = float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
	m.found = append(m.found, s)
	return nil
}

// memory notes the memory of the process: the node, and the Services as a source
// has them.
func (m *measurer) memory() error {
	debug.FreeOSMemory()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	use, err := results.MemoryOf(os.Getpid())
	use.HeapInUse, use.Live, use.Started = heap.HeapInuse, heap.HeapAlloc, m.started
	m.found = append(m.found, series{Operation: results.MemoryUse, Memory: &use})
	return err
}
