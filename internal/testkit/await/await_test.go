package await

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// failure is a test that ends.
type failure struct{ *testing.T }

func (failure) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// failed returns what a test that ends says.
func failed(f func()) (said any) {
	defer func() { said = recover() }()
	f()
	return nil
}

// TestUntil: the test goes on as soon as the event is there, and otherwise says what was missing.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		Until(t, func() error {
			if time.Since(begin) < 30*time.Second {
				return errors.New("too early")
			}
			return nil
		})
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("took %v", took)
		}
		said := failed(func() { Until(failure{t}, func() error { return errors.New("no file") }) })
		if said != "after 1m0s: no file" {
			t.Errorf("said %v", said)
		}
	})
}

// TestPollOfLongCondition: a condition that takes long is looked at half of the time.
func TestPollOfLongCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		err := Poll(10*time.Second, time.Millisecond, func() error {
			looks++
			time.Sleep(time.Second)
			return errors.New("not yet")
		})
		if err == nil || looks != 6 {
			t.Errorf("%d looks in 10 s, %v", looks, err)
		}
	})
}

func TestReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan int)
		go func() { time.Sleep(50 * time.Second); c <- 3; close(c) }()
		if got := Receive(t, c, "number"); got != 3 {
			t.Errorf("got %d", got)
		}
		if got := Receive(t, c, "end"); got != 0 {
			t.Errorf("got %d of a closed channel", got)
		}
		if said := failed(func() { Receive(failure{t}, make(chan int), "answer") }); said != "after 1m0s: no answer" {
			t.Errorf("said %v", said)
		}
	})
}

func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan struct{})
		read := func() error { <-closed; return errors.New("closed") }
		said := failed(func() { _ = Call(failure{t}, "packet", func() { close(closed) }, read) })
		if said != "after 1m0s: no packet: closed" {
			t.Errorf("said %v", said)
		}
		if err := Call(t, "packet", func() { t.Error("unblocked") }, read); err == nil {
			t.Error("the error is lost")
		}
		time.Sleep(2 * Patience)
	})
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, begin := make(chan struct{}), time.Now()
		time.AfterFunc(1500*time.Millisecond, func() { close(stop) })
		n := 0
		for Pace(stop, time.Second) {
			n++
		}
		Span(time.Second)
		if took := time.Since(begin); n != 1 || took != 2500*time.Millisecond {
			t.Errorf("%d requests in %v", n, took)
		}
	})
}

func TestTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, begin := make(chan struct{}), time.Now()
		time.AfterFunc(2500*time.Millisecond, func() { close(stop) })
		last := -1
		for last = range Ticks(stop, time.Second) {
			time.Sleep(100 * time.Millisecond) // of work, which does not slow it down
		}
		if took := time.Since(begin); last != 2 || took != 2500*time.Millisecond {
			t.Errorf("the last one was %d, after %v", last, took)
		}
		for range Ticks(stop, time.Second) {
			t.Error("a tick after the end")
		}
		for i := range Ticks(nil, time.Second) {
			if i == 3 {
				break
			}
		}
	})
}
