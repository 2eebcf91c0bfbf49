package agent

import (
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/apply"
)

const (
	// affinityCheck is the time between reads of the affinity maps' use, while a
	// Service has session affinity. Packets fill the maps, and the kernel reports
	// neither that nor a full map.
	affinityCheck = time.Minute
	// sweepRest is the pause after a sweep, in multiples of its duration: sweeps
	// use less than a tenth of a CPU.
	sweepRest = 10
)

// affinity is the state of the background work for session affinity.
type affinity struct {
	agent   *Config
	running sync.WaitGroup
	// looking is held while the use of the maps is read, and guards crowded.
	looking sync.Mutex
	crowded map[string]bool // maps reported as nearly full, by family and name
	read    chan *readSweep // sweeps ready for release
	busy    bool            // a sweep is in progress
	// rested fires when the next sweep may begin; nil: no sweep waits.
	rested <-chan time.Time
	next   time.Time // when the next sweep may begin
}

// readSweep is a sweep after it has read the affinity maps.
type readSweep struct {
	*apply.Sweep
	worked time.Duration
	err    error
}

// checkUse warns once when an affinity map is nearly full, and again if that
// recurs. It counts in the background, because that may take long.
func (f *affinity) checkUse() {
	f.running.Go(func() {
		if !f.looking.TryLock() {
			return
		}
		defer f.looking.Unlock()
		maps, err := f.agent.Affinity.AffinityUse()
		if err != nil {
			f.agent.Log.Error("cannot read the use of the affinity maps", "error", err)
			return
		}
		for _, m := range maps {
			name := m.Family.String() + " " + m.Map
			crowded := m.Used >= m.Size/10*9
			if crowded && !f.crowded[name] {
				f.agent.Log.Warn("affinity map is nearly full: further clients are served but not remembered; raise --affinity-size",
					"family", m.Family, "map", m.Map, "clients", m.Used, "size", m.Size)
			}
			f.crowded[name] = crowded
		}
	})
}

// startSweep starts a search for clients whose endpoints have departed, unless one is
// in progress or ended recently.
func (f *affinity) startSweep() {
	if f.busy || f.rested != nil || !f.agent.Applier.Departed() {
		return
	}
	if pause := time.Until(f.next); pause > 0 {
		f.rested = time.After(pause)
		return
	}
	s := f.agent.Applier.BeginSweep()
	f.busy = true
	f.running.Go(func() {
		began := time.Now()
		err := s.Read()
		f.read <- &readSweep{s, time.Since(began), err}
	})
}

// release releases some of the clients that a sweep has found. It queues the rest,
// so that changes can be served in between.
func (f *affinity) release(s *readSweep) {
	more, began := false, time.Now()
	if s.err == nil {
		more, s.err = f.agent.Applier.Release(s.Sweep)
	}
	if s.err != nil {
		// The rules release each client on its next packet.
		f.agent.Log.Debug("cannot release clients of departed endpoints in advance", "error", s.err)
	}
	s.worked += time.Since(began)
	if more {
		f.read <- s
		return
	}
	f.busy = false
	f.next = time.Now().Add(sweepRest * s.worked)
	f.startSweep()
}
