package logwriter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// place is a destination that can stop taking lines.
type place struct {
	gate chan struct{} // empty: it blocks
	text bytes.Buffer
	room int // bytes that it takes before it is full; negative: any number
}

var errFull = errors.New("no space left")

func (p *place) Write(text []byte) (int, error) {
	p.stop()
	defer p.goOn()
	if p.room < 0 || len(text) <= p.room {
		p.room = max(p.room-len(text), min(p.room, 0))
		return p.text.Write(text)
	}
	n, _ := p.text.Write(text[:p.room])
	p.room = 0
	return n, errFull
}

func newPlace() *place {
	p := &place{room: -1, gate: make(chan struct{}, 1)}
	p.goOn()
	return p
}

// stop makes writes block, goOn ends that.
func (p *place) stop() { <-p.gate }
func (p *place) goOn() { p.gate <- struct{}{} }

// inBubble runs f with a writer to a place, whose lines are numbers.
func inBubble(t *testing.T, f func(t *testing.T, w *Writer, p *place)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		w := New(p)
		w.Dropped = func(to io.Writer, lines int) { fmt.Fprintf(to, "(%d)\n", lines) }
		f(t, w, p)
	})
}

// write writes lines with the numbers from first to last and returns how long
// that took.
func write(w *Writer, first, last int) time.Duration {
	start := time.Now()
	for i := first; i <= last; i++ {
		fmt.Fprintf(w, "%d\n", i)
	}
	return time.Since(start)
}

// lines are the numbers from first to last, a line each.
func lines(first, last int) string {
	var b strings.Builder
	for i := first; i <= last; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func want(t *testing.T, p *place, text string) {
	t.Helper()
	p.stop()
	defer p.goOn()
	if got := p.text.String(); got != text {
		t.Errorf("got %q, want %q", got, text)
	}
}

// A line is there when Write returns: no end of the process loses it.
func TestWrittenAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, p *place) {
		for i := range 100 {
			write(w, i, i)
			want(t, p, lines(0, i))
		}
		w.Close()
		write(w, 100, 100)
		w.Close()
		want(t, p, lines(0, 99))
	})
}

// One line waits while the destination blocks, the next ones do not; all of them
// come when it goes on.
func TestBlocked(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, p *place) {
		write(w, 1, 1)
		p.stop()
		if took := write(w, 2, 500); took != writeTimeout {
			t.Errorf("499 lines took %v, want %v", took, writeTimeout)
		}
		p.goOn()
		synctest.Wait()
		want(t, p, lines(1, 500))
		write(w, 501, 501)
		want(t, p, lines(1, 501))
	})
}

// Lines without room in the queue are dropped, and counted in their place.
func TestDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, p *place) {
		w.size = len(lines(1, 5))
		p.stop()
		write(w, 1, 8)
		p.goOn()
		synctest.Wait()
		want(t, p, lines(1, 5)+"(3)\n")
		write(w, 1, 2)
		want(t, p, lines(1, 5)+"(3)\n"+lines(1, 2))
	})
}

// A line that is longer than all room is written all the same.
func TestLongLine(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, p *place) {
		w.size = 1
		write(w, 1000, 1001)
		want(t, p, lines(1000, 1001))
	})
}

// After an error a line goes on where it was cut.
func TestFull(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, p *place) {
		p.room = 5
		if took := write(w, 10, 19); took != writeTimeout {
			t.Errorf("10 lines took %v, want %v", took, writeTimeout)
		}
		want(t, p, "10\n11")
		p.stop()
		p.room = -1
		p.goOn()
		time.Sleep(retryPause)
		synctest.Wait()
		want(t, p, lines(10, 19))
	})
}

// The end waits for lines that are on their way, and not for ever for others.
func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, w *Writer, p *place) {
		p.stop()
		write(w, 1, 3)
		synctest.Wait() // until it is stuck
		time.AfterFunc(closeTimeout/2, p.goOn)
		w.Close()
		want(t, p, lines(1, 3))
	})
	inBubble(t, func(t *testing.T, w *Writer, p *place) {
		p.room = 0
		write(w, 1, 3)
		start := time.Now()
		w.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v to close what fails", took)
		}
	})
	inBubble(t, func(t *testing.T, w *Writer, p *place) {
		p.stop()
		write(w, 1, 3)
		start := time.Now()
		w.Close()
		if took := time.Since(start); took != closeTimeout {
			t.Errorf("took %v to close what blocks, want %v", took, closeTimeout)
		}
		p.goOn()
	})
}

// Lines of many are whole, and in the order of each.
func TestConcurrent(t *testing.T) {
	p := newPlace()
	w := New(p)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { write(w, 1, 500) })
	}
	all.Wait()
	w.Close()
	if got := strings.Count(p.text.String(), "\n"); got != 8*500 {
		t.Errorf("%d lines, want %d", got, 8*500)
	}
}
