package soak

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

const (
	// restTime is how long nothing is changed before memory is looked at.
	restTime = time.Second
	// moreHeap and moreMemory are how much the last samples may have more than the
	// first ones, besides a tenth: the same Services are never there twice. In the
	// 20 seconds of the shortest run, 100 KB lost in each sync are more.
	moreHeap, moreMemory = 2 << 20, 4 << 20
	// moreEach is what a process keeps for each Service once its endpoints have changed: the order of
	// their slots, which is the one of rendering at the start. It takes 110 bytes with 8 endpoints.
	// The process has as much garbage again.
	moreEach = 150
	// moreThings is how many more threads, files or goroutines there may be.
	moreThings = 8
	// leastSamples are needed for a first and a last third.
	leastSamples = 3
)

// sample is what a process has while it has nothing to do.
type sample struct {
	pid                int
	after              time.Duration
	resident, peak     uint64 // bytes
	anonymous          uint64 // resident bytes that are not of files
	heap               uint64 // bytes that are in use after a garbage collection
	files, listeners   int    // other files than listening sockets, and those
	threads, goroutine int
}

// sample looks at nftproxy when it has nothing to do.
func (s *soak) sample() {
	s.T.Helper()
	s.changes.gate.Lock()
	defer s.changes.gate.Unlock()
	await.Span(restTime)
	s.series = append(s.series, s.sampleOf(s.Node, s.proxy))
}

func (s *soak) sampleOf(host *netlab.Host, p *testbed.Process) (x sample) {
	s.T.Helper()
	m := p.Memory(s.T)
	x.pid, x.after, x.resident, x.peak = p.Cmd.Process.Pid, time.Since(s.began), m.Resident, m.Peak
	x.files, x.listeners = s.filesOf(p)
	status, err := os.ReadFile(p.ProcFile("status"))
	if err != nil {
		s.T.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		switch n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(value, "kB\n"))); key {
		case "Threads":
			x.threads = n
		case "RssAnon":
			x.anonymous = uint64(n) << 10
		}
	}
	collectGarbage(s.T, testbed.MetricsServer, host.DialContext)
	testbed.Eventually(s.T, func() error {
		return host.Do(func() error {
			heap, err := testbed.ReadMetric(testbed.MetricsServer, "go_memstats_heap_alloc_bytes ")
			if err != nil {
				return err
			}
			goroutines, err := testbed.ReadMetric(testbed.MetricsServer, "go_goroutines ")
			x.heap, x.goroutine = uint64(heap), int(goroutines)
			return err
		})
	})
	return x
}

// collectGarbage lets nftproxy collect its garbage, twice: what is pooled goes with the second
// collection. On a busy machine a connection may take longer than either end waits: the request
// is then made again, over another one.
func collectGarbage(t netlab.Test, server string, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	t.Helper()
	client := http.Client{Timeout: testbed.Patience, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	for range 2 {
		netlab.Eventually(t, testbed.Patience, func() error {
			r, err := client.Get("http://" + server + "/debug/pprof/heap?gc=1")
			if err != nil {
				return err
			}
			defer r.Body.Close()
			if r.StatusCode != http.StatusOK {
				return fmt.Errorf("heap profile: %s", r.Status)
			}
			_, err = io.Copy(io.Discard, r.Body)
			return err
		})
	}
}

// filesOf returns how many files a process has open, without the listening
// sockets, and how many of these: there is one for each Service with a health
// check of its own.
func (s *soak) filesOf(p *testbed.Process) (others, listeners int) {
	s.T.Helper()
	listening := map[string]bool{}
	for _, protocol := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(p.ProcFile("net/" + protocol))
		if err != nil {
			s.T.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			// Number, local and remote address, state, ..., inode.
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" {
				listening["socket:["+f[9]+"]"] = true
			}
		}
	}
	files, err := filepath.Glob(p.ProcFile("fd/*"))
	if err != nil || len(files) == 0 {
		s.T.Fatalf("%s: %d files, %v", p.Name, len(files), err)
	}
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && listening[to] {
			listeners++
		} else if err == nil {
			others++
		}
	}
	return others, listeners
}

// checkMemory compares the first third of the samples of the last process with
// the last third.
func (s *soak) checkMemory() {
	s.T.Helper()
	own := s.longSeries()
	n := len(own) / leastSamples
	slots := uint64(s.services * moreEach)
	for _, m := range []struct {
		name string
		of   func(sample) uint64
		more uint64
	}{
		{"resident bytes", func(x sample) uint64 { return x.resident }, moreMemory + 2*slots},
		{"anonymous bytes", func(x sample) uint64 { return x.anonymous }, moreMemory + 2*slots},
		{"bytes of the heap", func(x sample) uint64 { return x.heap }, moreHeap + slots},
		{"files", func(x sample) uint64 { return uint64(x.files) }, moreThings},
		{"threads", func(x sample) uint64 { return uint64(x.threads) }, moreThings},
		{"goroutines besides those of listeners", func(x sample) uint64 { return uint64(x.others()) }, moreThings},
	} {
		first, last := median(own[:n], m.of), median(own[len(own)-n:], m.of)
		if last > first+first/10+m.more {
			s.T.Errorf("%d %s at first became %d at last, want at most a tenth and %d more", first, m.name, last, m.more)
		}
	}
}

// longSeries returns the samples of the process that runs longest, without the
// first ones, before everything has happened once.
func (s *soak) longSeries() []sample {
	own := slices.DeleteFunc(slices.Clone(s.series), func(x sample) bool { return x.pid != s.longest })
	return own[len(own)/10:]
}

// others returns the number of goroutines that do not belong to listeners, which
// have one each.
func (x sample) others() int { return x.goroutine - x.listeners }

// median returns the one in the middle.
func median[T any, V cmp.Ordered](all []T, of func(T) V) V {
	var values []V
	for _, x := range all {
		values = append(values, of(x))
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// seriesTable shows the samples.
func (s *soak) seriesTable() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "after\tprocess\tresident\tanonymous\tpeak\theap\tfiles\tlisteners\tthreads\tgoroutines\t")
	for _, x := range s.series {
		fmt.Fprintf(w, "%v\t%d\t%.1f MiB\t%.1f MiB\t%.1f MiB\t%.1f MiB\t%d\t%d\t%d\t%d\t\n", x.after.Round(time.Second), x.pid,
			mebibytes(x.resident), mebibytes(x.anonymous), mebibytes(x.peak), mebibytes(x.heap), x.files, x.listeners, x.threads, x.goroutine)
	}
	_ = w.Flush()
	return b.String()
}

func mebibytes(n uint64) float64 { return float64(n) / (1 << 20) }
