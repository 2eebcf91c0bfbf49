package memory

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSpareMemory: 13.31. Memory is looked at once after work, however much that was, and each
// kind is returned only if it has grown since the last time.
func TestSpareMemory(t *testing.T) {
	t.Setenv("GOGC", "")
	synctest.Test(t, func(t *testing.T) {
		heap, program := &memoryOfTest{after: 50 << 20}, &memoryOfTest{after: 1 << 20}
		have := func(ofHeap, ofProgram int64) { heap.now.Store(ofHeap); program.now.Store(ofProgram) }
		m := newSpare(heap, program)
		go m.Run(t.Context())
		expect := func(looks, ofHeap, ofProgram int64) {
			t.Helper()
			time.Sleep(spareTime)
			synctest.Wait()
			if got := [...]int64{heap.looks.Load(), heap.freed.Load(), program.freed.Load()}; got != [...]int64{looks, ofHeap, ofProgram} {
				t.Fatalf("looked %d times, returned %d and %d times, want %d, %d and %d", got[0], got[1], got[2], looks, ofHeap, ofProgram)
			}
		}
		have(100<<20, 20<<20)
		expect(0, 0, 0)
		answer := m.Noting(http.NotFoundHandler())
		answer.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/status", nil))
		expect(2, 1, 1)

		have(50<<20*13/10+4<<20, 1<<20*13/10+4<<20+1)
		m.note()
		synctest.Wait()
		for range 3 { // while it waits: one more look is enough for all
			m.note()
		}
		expect(3, 1, 2)
		have(50<<20*13/10+4<<20+1, 1<<20*13/10+4<<20)
		expect(5, 2, 2)
		expect(5, 2, 2)
	})
}

// memoryOfTest is memory whose sizes the test sets.
type memoryOfTest struct {
	now          atomic.Int64 // the size
	after        int64        // that after a return
	looks, freed atomic.Int64
}

func (m *memoryOfTest) size() int64 { m.looks.Add(1); return m.now.Load() }
func (m *memoryOfTest) free()       { m.freed.Add(1); m.now.Store(m.after) }

// TestSpareMemoryOfUsers: 13.31. With GOGC in the environment nothing is returned.
func TestSpareMemoryOfUsers(t *testing.T) {
	t.Setenv("GOGC", "100")
	all := new(memoryOfTest)
	all.now.Store(1 << 40)
	m := newSpare(all)
	m.note()
	m.Run(t.Context()) // ends
	if all.freed.Load() > 0 {
		t.Error("memory was returned")
	}
}

// TestHeapSize: what the heap holds counts, and what was returned does not.
func TestHeapSize(t *testing.T) {
	const size = 64 << 20
	debug.FreeOSMemory()
	before := (heap{}).size()
	held := make([]byte, size)
	if with := (heap{}).size(); with < before+size/2 {
		t.Errorf("%d MiB before, %d MiB with %d MiB", before>>20, with>>20, size>>20)
	}
	runtime.KeepAlive(held)
	held = nil
	debug.FreeOSMemory()
	if after := (heap{}).size(); after > before+size/2 {
		t.Errorf("%d MiB before, %d MiB after", before>>20, after>>20)
	}
}
