package memory

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestSpareMemory: 13.31. Memory is looked at once after work, however much that was, and each
// kind is returned only if it has grown since the last time.
func TestSpareMemory(t *testing.T) {
	t.Setenv("GOGC", "")
	m := newSpare()
	waits, pass := make(chan time.Duration), make(chan time.Time)
	m.after = func(d time.Duration) <-chan time.Time { waits <- d; return pass }
	heap, program := fakeMemory(), fakeMemory()
	m.kinds = []kind{heap.kind(), program.kind()}
	go m.Run(t.Context())

	answer := m.Noting(http.NotFoundHandler())
	answer.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/status", nil))
	if d := <-waits; d != spareTime {
		t.Errorf("it waits for %v", d)
	}
	pass <- time.Time{}
	heap.returned(100<<20, 50<<20)
	program.returned(20<<20, 1<<20)

	m.note()
	<-waits
	for range 3 { // while it waits: one more look is enough for all
		m.note()
	}
	pass <- time.Time{}
	heap.looks <- 50<<20*13/10 + 4<<20
	program.returned(1<<20*13/10+4<<20+1, 1<<20)
	select {
	case <-waits:
	case <-heap.freed:
		t.Fatal("memory was returned for little")
	}
	if len(m.noted) > 0 {
		t.Error("work was noted twice")
	}
	pass <- time.Time{}
	heap.returned(50<<20*13/10+4<<20+1, 50<<20)
	program.looks <- 1<<20*13/10 + 4<<20
}

// memoryOfTest is memory whose sizes the test says.
type memoryOfTest struct {
	looks chan int64
	freed chan struct{}
}

func fakeMemory() memoryOfTest { return memoryOfTest{make(chan int64), make(chan struct{})} }

func (m memoryOfTest) kind() kind {
	return kind{size: func() int64 { return <-m.looks }, free: func() { m.freed <- struct{}{} }}
}

// returned expects that memory is returned, with a size before and another one after it.
func (m memoryOfTest) returned(before, after int64) {
	m.looks <- before
	<-m.freed
	m.looks <- after
}

// TestSpareMemoryOfUsers: 13.31. With GOGC in the environment nothing is returned.
func TestSpareMemoryOfUsers(t *testing.T) {
	t.Setenv("GOGC", "100")
	m := newSpare()
	m.kinds = []kind{{size: func() int64 { return 1 << 40 }, free: func() { t.Error("memory was returned") }}}
	m.note()
	m.Run(t.Context()) // ends
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
