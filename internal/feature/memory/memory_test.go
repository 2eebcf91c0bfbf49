package memory

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
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
		m := newSpare(heap, program)
		go m.Run(t.Context())
		expect := func(looks, ofHeap, ofProgram int) {
			t.Helper()
			time.Sleep(spareTime)
			synctest.Wait()
			if got := [...]int{heap.looks, heap.freed, program.freed}; got != [...]int{looks, ofHeap, ofProgram} {
				t.Fatalf("looked %d times, returned %d and %d times, want %d, %d and %d", got[0], got[1], got[2], looks, ofHeap, ofProgram)
			}
		}
		heap.now, program.now = 100<<20, 20<<20
		expect(0, 0, 0)
		answer := m.Noting(http.NotFoundHandler())
		answer.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/status", nil))
		expect(2, 1, 1)

		heap.now, program.now = 50<<20*13/10+4<<20, 1<<20*13/10+4<<20+1
		m.note()
		synctest.Wait()
		for range 3 { // while it waits: one more look is enough for all
			m.note()
		}
		expect(3, 1, 2)
		heap.now, program.now = 50<<20*13/10+4<<20+1, 1<<20*13/10+4<<20
		expect(5, 2, 2)
		expect(5, 2, 2)
	})
}

// memoryOfTest is memory whose sizes the test sets.
type memoryOfTest struct {
	now, after   int64 // the sizes, after a return
	looks, freed int
}

func (m *memoryOfTest) size() int64 { m.looks++; return m.now }
func (m *memoryOfTest) free()       { m.freed++; m.now = m.after }

// TestSpareMemoryOfUsers: 13.31. With GOGC in the environment nothing is returned.
func TestSpareMemoryOfUsers(t *testing.T) {
	t.Setenv("GOGC", "100")
	all := &memoryOfTest{now: 1 << 40}
	m := newSpare(all)
	m.note()
	m.Run(t.Context()) // ends
	if all.freed > 0 {
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
