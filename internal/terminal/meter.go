package terminal

import (
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	meterDelay = time.Second            // before the first line
	meterPause = 200 * time.Millisecond // between two
)

// Meter shows the progress of long work in one line of a terminal, which it erases in
// the end. Other lines are written through it, so that both do not mix. It is safe for
// concurrent use.
type Meter struct {
	to    io.Writer
	width func() int // of the terminal; nil: there is none, and nothing is shown

	mu    sync.Mutex
	begun time.Time // the first phase
	since time.Time // the present phase
	phase func() string
	drawn bool
	stop  chan struct{} // nil: no work
	ended sync.WaitGroup
}

// NewMeter returns a meter for the terminal of that width. Without one, nil, it shows
// nothing.
func NewMeter(to io.Writer, width func() int) *Meter { return &Meter{to: to, width: width} }

// Write writes lines above that of the meter.
func (m *Meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.erase()
	return m.to.Write(p)
}

// Start begins a phase of the work. Its text is asked for whenever it is shown.
func (m *Meter) Start(phase func() string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.width == nil {
		return
	}
	m.phase, m.since = phase, time.Now()
	if m.stop == nil {
		m.begun, m.stop = m.since, make(chan struct{})
		stop := m.stop
		m.ended.Go(func() { m.run(stop) })
	}
}

// Stop ends the work and erases the line.
func (m *Meter) Stop() {
	m.mu.Lock()
	stop := m.stop
	m.stop = nil
	m.mu.Unlock()
	if stop == nil {
		return
	}
	close(stop)
	m.ended.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.erase()
}

func (m *Meter) run(stop <-chan struct{}) {
	ticker := time.NewTicker(meterPause)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-ticker.C:
			m.draw(now)
		}
	}
}

func (m *Meter) draw(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.begun) < meterDelay {
		return
	}
	text := []rune(fmt.Sprintf("%s, %d s", Printable(m.phase()), int(now.Sub(m.since).Seconds())))
	// A line of the full width would go on in the next one.
	text = text[:min(len(text), max(0, m.width()-1))]
	m.erase()
	m.drawn = true
	_, _ = io.WriteString(m.to, string(text)) // a terminal that is gone needs no progress
}

func (m *Meter) erase() {
	if m.drawn {
		_, _ = io.WriteString(m.to, "\r\x1b[K")
		m.drawn = false
	}
}
