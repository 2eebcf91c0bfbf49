// Package memory returns memory to the OS that the process no longer needs.
package memory

import (
	"context"
	"net/http"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind].
func (Kind) New(*feature.Node) feature.Feature { return newSpare() }

// settledGC is the value of GOGC after the first sync: changes create little garbage,
// so memory matters more than the collector's CPU time.
const settledGC = 50

// freeMemory returns memory to the OS: a comparison needs several times the
// steady-state heap and is rare.
func freeMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(settledGC)
	}
	debug.FreeOSMemory()
	_ = unmapProgram() // without it, the process only takes more memory
}

// spareTime is how long memory stays after work that may have needed much, for more such work.
const spareTime = 30 * time.Second

// spare returns memory to the OS that a file which was read again, or a long answer, has
// needed: the runtime itself keeps it for minutes, and the kernel the pages of the program that ran.
// It is looked at once after such work; nothing happens at rest.
type spare struct {
	noted chan struct{}
	after func(time.Duration) <-chan time.Time
	kinds []kind
}

// kind is memory that can be returned.
type kind struct {
	size  func() int64 // in bytes
	free  func()
	least int64 // the size after the last return
}

func newSpare() *spare {
	return &spare{noted: make(chan struct{}, 1), after: time.After, kinds: []kind{
		{size: heapSize, free: debug.FreeOSMemory},
		{size: programSize, free: func() { _ = unmapProgram() }}, // without it, the process only takes more memory
	}}
}

// note says that there was work.
func (m *spare) note() {
	parallel.Signal(m.noted)
}

// Noting returns a handler whose answers are such work.
func (m *spare) Noting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer m.note()
		h.ServeHTTP(w, r)
	})
}

// FollowSync implements [feature.Observer].
func (m *spare) FollowSync(s *feature.Sync) {
	if s.Err != nil {
		return
	}
	if s.Compared {
		go freeMemory()
	}
	m.note()
}

// Run implements [feature.Runner]: it returns spare memory until ctx is done.
func (m *spare) Run(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return // the user decides
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.noted:
		}
		select {
		case <-ctx.Done():
			return
		case <-m.after(spareTime):
		}
		for i := range m.kinds {
			m.kinds[i].giveBack()
		}
	}
}

// giveBack returns the memory if there is much more than after the last return.
func (k *kind) giveBack() {
	if k.size() > spareFrom(k.least) {
		k.free()
		k.least = k.size()
	}
}

// spareFrom returns the size from which on a return is worth its time.
func spareFrom(least int64) int64 { return least*13/10 + 4<<20 }

// heapSize returns how many bytes the heap has of the OS.
func heapSize() (sum int64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	for _, s := range samples {
		sum += int64(s.Value.Uint64())
	}
	return sum
}
