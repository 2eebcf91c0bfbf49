package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/nftproxy/nftproxy/bench/results"
)

// How long the demo waits for nftproxy, which takes minutes for what takes a second on a machine with nothing
// else to do, if forty programs share two processors.
const (
	stuck   = 30 * time.Second // without progress, on a machine that is not busy
	longest = 20 * time.Minute // whatever there is
	remark  = 5 * time.Second  // before the demo says that it waits
	pause   = time.Second      // between two looks at the progress
)

// wait is a wait for nftproxy. It has an end if nftproxy neither works nor waits for a processor.
type wait struct {
	what  string // nftproxy has not done so far
	out   io.Writer
	work  func() (time.Duration, error) // of nftproxy so far, with the time that it waited for a processor
	load  func() float64                // of the machine: programs that run or want to
	begin time.Time
	since time.Time     // of the last progress
	done  time.Duration // of work, then
	told  bool
}

// newWait begins a wait until nftproxy has done something.
func (p *proxy) newWait(what string) *wait {
	now := time.Now()
	return &wait{what: what, out: p.out, begin: now, since: now, load: results.Load, work: func() (time.Duration, error) {
		used, waited, err := results.ProcessorTimes(p.cmd.Process.Pid)
		return used + waited, err
	}}
}

// check returns an error if it makes no sense to wait on.
func (w *wait) check(now time.Time) error {
	// At rest, a process works less than a hundredth of the time. One that has ended does nothing.
	if done, err := w.work(); err == nil && done-w.done > now.Sub(w.since)/20 {
		w.since, w.done = now, done
	}
	limit := w.limit()
	switch waited := now.Sub(w.begin).Round(time.Second); {
	case now.Sub(w.since) > limit:
		return fmt.Errorf("nftproxy has not %s within %v, and has done nothing for the last %v", w.what, waited, limit)
	case waited > longest:
		return fmt.Errorf("nftproxy has not %s within %v", w.what, waited)
	case waited >= remark && !w.told:
		w.told = true
		w.remark()
	}
	return nil
}

// limit returns how long nftproxy may do nothing. On a busy machine it waits in the kernel, too, for programs that
// hold a lock and wait for a processor.
func (w *wait) limit() time.Duration {
	if load := w.busyLoad(); load > 0 {
		return stuck * time.Duration(load) / time.Duration(runtime.NumCPU())
	}
	return stuck
}

// busyLoad returns the load of a busy machine; 0: it is not busy.
func (w *wait) busyLoad() float64 {
	if load := w.load(); load > 2*float64(runtime.NumCPU()) {
		return load
	}
	return 0
}

// remark says that the demo waits, and why that may be.
func (w *wait) remark() {
	why := ""
	if load := w.busyLoad(); load > 0 {
		why = fmt.Sprintf(": this machine is busy, %.0f programs want its %d processors", load, runtime.NumCPU())
	}
	fmt.Fprintf(w.out, "(waiting until nftproxy has %s%s)\n", w.what, why)
}
