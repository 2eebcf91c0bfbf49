// Package await waits for events, in tests of real sockets, files and processes. All other tests with
// goroutines or time run in bubbles of testing/synctest, where time passes when everything waits.
//
// No test depends on luck: [Until] and [Receive] end as soon as the event is there, and a machine that is
// busy has [Patience]. [Pace] and [Span] let real time pass, for load on a real kernel and for what must
// not happen to it; a test passes there on a machine of any speed.
package await

import (
	"fmt"
	"iter"
	"time"
)

// Patience is how long a test waits for an event unless it says otherwise.
const Patience = time.Minute

const pause = 2 * time.Millisecond // between two looks at a condition

// Test is the part of a test or a benchmark that waits.
type Test interface {
	Helper()
	Fatal(args ...any)
}

// Until waits until a condition holds: it returns nil, or an error that says what is missing, with
// which the test ends after [Patience].
func Until(t Test, condition func() error) {
	t.Helper()
	Within(t, Patience, condition)
}

// Within is [Until] for a condition that takes longer, or for a long list of them.
func Within(t Test, patience time.Duration, condition func() error) {
	t.Helper()
	if err := Poll(patience, pause, condition); err != nil {
		t.Fatal(err)
	}
}

// Poll calls a function with a pause in between, until it returns nil or the time is over. Its error
// wraps the last one. A function that takes longer than the pause, such as one that starts a program, has
// a pause as long as it took: what it waits for needs the processor too.
func Poll(patience, pause time.Duration, condition func() error) error {
	for deadline := time.Now().Add(patience); ; {
		begin := time.Now()
		err := condition()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %w", patience, err)
		}
		time.Sleep(max(pause, time.Since(begin)))
	}
}

// Receive returns the next value of a channel, or the zero value when it is closed. It ends the test
// after [Patience]; what names the event.
func Receive[T any](t Test, c <-chan T, what string) T {
	t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	var v T
	select {
	case v = <-c:
	case <-late.C:
		t.Fatal(fmt.Sprintf("after %v: no %s", Patience, what))
	}
	return v
}

// Call calls a function that blocks, such as one that reads a socket, and returns its error. After
// [Patience] it calls unblock, which ends the function, and ends the test; what names the event.
func Call(t Test, what string, unblock func(), f func() error) error {
	t.Helper()
	late := time.AfterFunc(Patience, unblock)
	err := f()
	if !late.Stop() {
		t.Fatal(fmt.Sprintf("after %v: no %s: %v", Patience, what, err))
	}
	return err
}

// Pace waits between two requests of a client, and reports whether the load goes on: it ends with the
// channel stop, which may be nil. How long it takes decides on the amount of load and on nothing else.
func Pace(stop <-chan struct{}, d time.Duration) bool {
	next := time.NewTimer(d)
	defer next.Stop()
	select {
	case <-stop:
		return false
	case <-next.C:
		return true
	}
}

// Ticks counts from 0 at a steady pace, the first time immediately, until the channel stop ends, which
// may be nil. Like [Pace], it is for load.
func Ticks(stop <-chan struct{}, d time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		pace := time.NewTicker(d)
		defer pace.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if !yield(i) {
				return
			}
			select {
			case <-stop:
			case <-pace.C:
			}
		}
	}
}

// Span lets real time pass in which something must not happen, or during which something is measured.
// A test that waits for an event uses [Until]: after a span, the event may still be missing on a busy machine.
func Span(d time.Duration) { time.Sleep(d) }
