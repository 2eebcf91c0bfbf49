// Package logwriter writes a log to where it may not get on: a pipe that nobody
// reads, a disk that is full. Whoever logs goes on.
package logwriter

import (
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// DefaultSize is how many bytes wait to be written at most.
	DefaultSize = 1 << 20
	// DefaultPatience is the longest that a line holds up who writes it.
	DefaultPatience = 50 * time.Millisecond
	// DefaultRetry passes between attempts at a destination that fails.
	DefaultRetry = time.Second
	// DefaultFarewell is the longest that Close takes.
	DefaultFarewell = time.Second
)

// Writer passes lines on in their order. As long as the destination takes them,
// Write is as good as a write to it: a line that it has returned from outlives
// the process. When the destination stops taking them, one line waits for
// Patience, and the following ones not at all; they are kept and written later.
// When there is no room for more, the newest are dropped, and their number is
// told in their place.
//
// The fields are set before the first Write. Writer is safe for concurrent use.
type Writer struct {
	// Dropped writes a line that says how many were dropped.
	Dropped func(to io.Writer, lines int)

	Size                      int
	Patience, Retry, Farewell time.Duration

	to      io.Writer
	closing chan struct{} // closed by Close

	mu      sync.Mutex
	queue   []line        // the first one is being written
	bytes   int           // in the queue
	dropped int           // lines after those in the queue
	behind  bool          // lines are not waited for
	idle    chan struct{} // closed when the queue is empty; nil: it is
}

// line is one that waits.
type line struct {
	text    []byte
	missing int           // lines that were dropped before it
	done    chan struct{} // closed when it is written
}

// New returns a writer to a destination, whose Write may block for ever, or
// fail.
func New(to io.Writer) *Writer {
	return &Writer{
		Dropped: func(io.Writer, int) {},
		Size:    DefaultSize, Patience: DefaultPatience, Retry: DefaultRetry, Farewell: DefaultFarewell,
		to: to, closing: make(chan struct{}),
	}
}

// Write takes a line. It never fails: nobody who logs could do anything about
// it.
func (w *Writer) Write(p []byte) (int, error) {
	done := w.enqueue(p)
	if done == nil {
		return len(p), nil
	}
	patience := time.NewTimer(w.Patience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
		w.mu.Lock()
		w.behind = w.idle != nil
		w.mu.Unlock()
	}
	return len(p), nil
}

// enqueue returns what tells that a line is written, or nil if that is not to
// be waited for.
func (w *Writer) enqueue(p []byte) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed() || w.bytes > 0 && w.bytes+len(p) > w.Size {
		w.dropped++
		return nil
	}
	l := line{slices.Clone(p), w.dropped, make(chan struct{})}
	w.queue, w.bytes, w.dropped = append(w.queue, l), w.bytes+len(p), 0
	if w.idle == nil {
		w.idle = make(chan struct{})
		go w.drain()
	}
	if w.behind {
		return nil
	}
	return l.done
}

func (w *Writer) closed() bool {
	select {
	case <-w.closing:
		return true
	default:
		return false
	}
}

// drain writes until nothing is left, or until the destination fails after
// Close.
func (w *Writer) drain() {
	for {
		l, ok := w.next()
		if !ok {
			return
		}
		if l.missing > 0 {
			w.Dropped(persistent{w}, l.missing)
		}
		if len(l.text) == 0 {
			continue
		}
		if _, err := (persistent{w}).Write(l.text); err != nil {
			w.rest()
			return
		}
		close(l.done)
		w.mu.Lock()
		w.queue, w.bytes = w.queue[1:], w.bytes-len(l.text)
		w.mu.Unlock()
	}
}

// next returns the oldest line. The last one may have no text, but tell of
// others.
func (w *Writer) next() (line, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		return w.queue[0], true
	}
	if w.dropped > 0 && !w.closed() {
		l := line{missing: w.dropped}
		w.dropped = 0
		return l, true
	}
	w.stop()
	return line{}, false
}

// rest gives up what is left.
func (w *Writer) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
}

// stop ends the writing. The caller holds the lock.
func (w *Writer) stop() {
	close(w.idle)
	w.queue, w.bytes, w.behind, w.idle = nil, 0, false, nil
}

// Close waits until all lines are written, as long as the destination takes
// them, and not longer than Farewell. Lines that come later are dropped.
func (w *Writer) Close() error {
	w.mu.Lock()
	if !w.closed() {
		close(w.closing)
	}
	idle := w.idle
	w.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
	case <-time.After(w.Farewell):
	}
	return nil
}

// persistent goes on after errors with what is not written yet, so that no line
// is torn. It fails after Close only.
type persistent struct{ *Writer }

func (p persistent) Write(text []byte) (int, error) {
	for rest := text; ; {
		n, err := p.to.Write(rest)
		if rest = rest[n:]; err == nil || len(rest) == 0 {
			return len(text), nil
		}
		select {
		case <-p.closing:
			return len(text) - len(rest), err
		case <-time.After(p.Retry):
		}
	}
}
