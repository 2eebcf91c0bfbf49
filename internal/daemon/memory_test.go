package daemon

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestSpareMemory: 13.31. The heap is looked at once after work, however much that was, and
// memory is returned only if the heap has grown since the last time.
func TestSpareMemory(t *testing.T) {
	t.Setenv("GOGC", "")
	m := newSpareMemory()
	waits, pass, looks, freed := make(chan time.Duration), make(chan time.Time), make(chan int64), make(chan struct{})
	m.after = func(d time.Duration) <-chan time.Time { waits <- d; return pass }
	m.heap, m.free = func() int64 { return <-looks }, func() { freed <- struct{}{} }
	go m.run(t.Context())

	answer := m.noting(http.NotFoundHandler())
	answer.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/status", nil))
	if d := <-waits; d != spareTime {
		t.Errorf("it waits for %v", d)
	}
	pass <- time.Time{}
	looks <- 100 << 20
	<-freed
	looks <- 50 << 20 // what is left

	m.note()
	<-waits
	for range 3 { // while it waits: one more look is enough for all
		m.note()
	}
	pass <- time.Time{}
	looks <- 50<<20*13/10 + 4<<20
	select {
	case <-waits:
	case <-freed:
		t.Fatal("memory was returned for little")
	}
	if len(m.noted) > 0 {
		t.Error("work was noted twice")
	}
	pass <- time.Time{}
	looks <- 50<<20*13/10 + 4<<20 + 1
	<-freed
	looks <- 50 << 20
}

// TestSpareMemoryOfUsers: 13.31. With GOGC in the environment nothing is returned.
func TestSpareMemoryOfUsers(t *testing.T) {
	t.Setenv("GOGC", "100")
	m := newSpareMemory()
	m.free = func() { t.Error("memory was returned") }
	m.note()
	m.run(t.Context()) // ends
}

// TestHeapSize: what the heap holds counts, and what was returned does not.
func TestHeapSize(t *testing.T) {
	const size = 64 << 20
	debug.FreeOSMemory()
	before := heapSize()
	held := make([]byte, size)
	if with := heapSize(); with < before+size/2 {
		t.Errorf("%d MiB before, %d MiB with %d MiB", before>>20, with>>20, size>>20)
	}
	runtime.KeepAlive(held)
	held = nil
	debug.FreeOSMemory()
	if after := heapSize(); after > before+size/2 {
		t.Errorf("%d MiB before, %d MiB after", before>>20, after>>20)
	}
}
