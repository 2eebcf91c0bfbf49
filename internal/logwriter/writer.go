// Package logwriter writes a log to a destination that may block or fail: a pipe
// without a reader, a full disk. The program that logs continues.
package logwriter

import (
	"io"
	"slices"
	"sync"
	"time"
)

const (
	maxSize      = 1 << 20               // bytes in the queue
	writeTimeout = 50 * time.Millisecond // for the first line that cannot be written
	retryPause   = time.Second           // between attempts at a destination that fails
	closeTimeout = time.Second
)

// Writer writes lines in order. While the destination accepts them, Write returns after its line is written. When
// the destination blocks, one line waits for writeTimeout, and the following ones are queued and written later.
// When the queue is full, new lines are dropped, and a line in their place gives their number. Writer is safe for
// concurrent use.
type Writer struct {
	// Dropped writes a line about dropped lines. It is set before the first Write.
	Dropped func(to io.Writer, lines int)

	to      io.Writer
	size    int
	closing chan struct{} // closed by Close

	mu      sync.Mutex
	queue   []line        // the first one is being written
	bytes   int           // in the queue
	dropped int           // lines after those in the queue
	behind  bool          // Write does not wait
	idle    chan struct{} // closed when the queue is empty; nil: it is
}

type line struct {
	text    []byte
	missing int           // lines that were dropped before it
	done    chan struct{} // closed when it is written
}

// New returns a writer to a destination whose Write may fail or block forever.
func New(to io.Writer) *Writer {
	return &Writer{Dropped: func(io.Writer, int) {}, to: to, size: maxSize, closing: make(chan struct{})}
}

// Write implements [io.Writer] for a line. It never fails.
func (w *Writer) Write(p []byte) (int, error) {
	done := w.enqueue(p)
	if done == nil {
		return len(p), nil
	}
	select {
	case <-done:
	case <-time.After(writeTimeout):
		w.mu.Lock()
		w.behind = w.idle != nil
		w.mu.Unlock()
	}
	return len(p), nil
}

// enqueue returns a channel that is closed when the line is written, or nil if Write does not wait for that.
func (w *Writer) enqueue(p []byte) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed() || w.bytes > 0 && w.bytes+len(p) > w.size {
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

// drain writes until nothing is left, or until the destination fails after Close. Then it discards the queue.
func (w *Writer) drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for err := error(nil); err == nil && (len(w.queue) > 0 || w.dropped > 0 && !w.closed()); {
		l := line{missing: w.dropped} // after the last one
		if len(w.queue) > 0 {
			l = w.queue[0]
		} else {
			w.dropped = 0
		}
		w.mu.Unlock()
		if l.missing > 0 {
			w.Dropped(persistent{w}, l.missing)
		}
		_, err = persistent{w}.Write(l.text)
		w.mu.Lock()
		if err == nil && l.done != nil {
			close(l.done)
			w.queue, w.bytes = w.queue[1:], w.bytes-len(l.text)
		}
	}
	close(w.idle)
	w.queue, w.bytes, w.behind, w.idle = nil, 0, false, nil
}

// Close waits until all lines are written, but not longer than closeTimeout. Later lines are dropped.
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
	case <-time.After(closeTimeout):
	}
	return nil
}

// persistent retries the rest of a line after errors, so that no line is torn. It fails only after Close.
type persistent struct{ *Writer }

func (p persistent) Write(text []byte) (int, error) {
	for rest := text; len(rest) > 0; {
		n, err := p.to.Write(rest)
		if rest = rest[n:]; err == nil || len(rest) == 0 {
			break
		}
		select {
		case <-p.closing:
			return len(text) - len(rest), err
		case <-time.After(retryPause):
		}
	}
	return len(text), nil
}
