// Package memory returns memory to the OS that the process no longer needs.
package memory

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

type Kind struct{}

func (Kind) New(*feature.Node) feature.Feature { return newSpare(heap{}, program{}) }

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
	program{}.free()
}

// spareTime is how long memory stays after work that may have needed much, for more such work.
const spareTime = 30 * time.Second

// spare returns memory to the OS that a file which was read again, or a long answer, has
// needed: the runtime itself keeps it for minutes, and the kernel the pages of the program that ran.
// It is looked at once after such work; nothing happens at rest.
type spare struct {
	noted chan struct{}
	kinds []*kind
}

// store is memory that can be returned.
type store interface {
	size() int64 // in bytes
	free()
}

// kind is a store, and its size after the last return.
type kind struct {
	store
	least int64
}

func newSpare(all ...store) *spare {
	m := &spare{noted: make(chan struct{}, 1)}
	for _, s := range all {
		m.kinds = append(m.kinds, &kind{store: s})
	}
	return m
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
		if !parallel.Wait(ctx, spareTime) {
			return
		}
		for _, k := range m.kinds {
			k.giveBack()
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

// heap is the heap: the bytes that it has of the OS.
type heap struct{}

func (heap) free() { debug.FreeOSMemory() }

func (heap) size() (sum int64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	for _, s := range samples {
		sum += int64(s.Value.Uint64())
	}
	return sum
}

type extent struct{ from, to uintptr }

// unmapProgram returns the pages of the program that only the start, or a rare command, has needed:
// the kernel counts them as memory of the process, and keeps them longer than others of the file
// when memory is short. A page that is needed again comes back from the cache of the file.
func unmapProgram() error {
	name, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	for _, e := range unchanged(f, name) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, e.from, e.to-e.from, unix.MADV_DONTNEED); errno != 0 {
			return os.NewSyscallError("madvise", errno)
		}
	}
	return nil
}

type program struct{}

func (program) free() { _ = unmapProgram() } // without it, the process only takes more memory

// size returns how many bytes of files are mapped and resident: nearly all are of the program.
// statm is explained in proc_pid_statm(5).
func (program) size() int64 {
	var size, resident, shared int64
	text, _ := os.ReadFile("/proc/self/statm") // without it, nothing is given back
	_, _ = fmt.Sscan(string(text), &size, &resident, &shared)
	return shared * int64(os.Getpagesize())
}

// unchanged returns where a file is mapped that cannot be written there, and has no pages that differ
// from the file: the content of these would be lost. smaps is explained in proc_pid_smaps(5).
func unchanged(smaps io.Reader, name string) (out []extent) {
	var at extent
	var reads bool
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		var e extent
		var access string
		line := lines.Text()
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &e.from, &e.to, &access); n == 3 {
			at, reads = e, e.from < e.to && strings.HasPrefix(access, "r-") && strings.HasSuffix(line, " "+name)
		} else if fields := strings.Fields(line); reads && len(fields) > 1 && fields[0] == "Anonymous:" && fields[1] == "0" {
			out, reads = append(out, at), false
		}
	}
	return out
}
