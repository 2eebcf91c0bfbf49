package agent

import (
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/apply"
)

const (
	// affinityCheck is the time between looks at the affinity maps.
	affinityCheck = time.Minute
	// sweepRest is how long the sweeps of clients rest, in multiples of the time
	// that the last one worked: they must not take a tenth of a processor.
	sweepRest = 10
)

// affinity is the work that clients with session affinity make. Nothing of it is
// on the path of a change.
type affinity struct {
	running sync.WaitGroup
	// looking is held while the use of the maps is read, and guards crowded.
	looking sync.Mutex
	crowded map[string]bool // maps that are reported as nearly full, by family and name
	// read delivers sweeps that know whom to release.
	read chan *readSweep
	busy bool // a sweep is under way
	// rested fires when the next sweep may begin; nil: nothing waits for it.
	rested <-chan time.Time
	next   time.Time // when the next sweep may begin
}

// readSweep is a sweep that has read the affinity maps.
type readSweep struct {
	*apply.Sweep
	worked time.Duration
	err    error
}

func newAffinity() affinity {
	return affinity{crowded: make(map[string]bool), read: make(chan *readSweep, 1)}
}

// wait returns when nothing runs in the background any more.
func (f *affinity) wait() { f.running.Wait() }

// checkAffinity warns once when an affinity map gets full, and again after it
// had room. Counting may take long, and does not keep changes waiting.
func (a *Agent) checkAffinity() {
	f := &a.affinity
	f.running.Go(func() {
		if !f.looking.TryLock() {
			return
		}
		defer f.looking.Unlock()
		maps, err := a.AffinityUse()
		if err != nil {
			a.Log.Error("use of the affinity maps is unknown", "error", err)
			return
		}
		for _, m := range maps {
			name := m.Family.String() + " " + m.Map
			crowded := m.Used >= m.Size/10*9
			if crowded && !f.crowded[name] {
				a.Log.Warn("affinity map is nearly full: further clients are served but not remembered; raise --affinity-size",
					"family", m.Family, "map", m.Map, "clients", m.Used, "size", m.Size)
			}
			f.crowded[name] = crowded
		}
	})
}

// sweep begins to look for clients whose endpoints have departed, unless that is
// under way or was a short while ago.
func (a *Agent) sweep() {
	f := &a.affinity
	if f.busy || f.rested != nil || !a.Applier.Departed() {
		return
	}
	if pause := time.Until(f.next); pause > 0 {
		f.rested = time.After(pause)
		return
	}
	s := a.Applier.BeginSweep()
	f.busy = true
	f.running.Go(func() {
		began := time.Now()
		err := s.Read()
		f.read <- &readSweep{s, time.Since(began), err}
	})
}

// release releases some of the clients that a sweep has found, and comes back
// for the others after whatever else there is to do.
func (a *Agent) release(s *readSweep) {
	more, began := false, time.Now()
	if s.err == nil {
		more, s.err = a.Applier.Release(s.Sweep)
	}
	if s.err != nil {
		// The rules release each of them with its next packet.
		a.Log.Debug("clients of departed endpoints are not released in advance", "error", s.err)
	}
	s.worked += time.Since(began)
	if more {
		a.affinity.read <- s
		return
	}
	a.affinity.busy = false
	a.affinity.next = time.Now().Add(sweepRest * s.worked)
	a.sweep()
}
