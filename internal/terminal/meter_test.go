package terminal_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// screen is a buffer for concurrent use. It embeds none: the methods of the buffer do not lock.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}

func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s screen
		m := terminal.NewMeter(&s, func() int { return 20 })
		m.Start(func() string { return "reading" })
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if got := s.take(); got != "" {
			t.Errorf("within a second: %q", got)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if got := s.take(); got != "reading, 1 s" {
			t.Errorf("after a second: %q", got)
		}
		n := 0
		m.Start(func() string { n++; return fmt.Sprintf("\x1b[2J%d of 1000000 elements", n) })
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if got := s.take(); got != "\r\x1b[K"+`\x1b[2J1 of 1000000` {
			t.Errorf("the next phase: %q", got)
		}
		fmt.Fprintln(m, "a warning")
		if got := s.take(); got != "\r\x1b[Ka warning\n" {
			t.Errorf("with a line: %q", got)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		s.take()
		m.Stop()
		if got := s.take(); got != "\r\x1b[K" {
			t.Errorf("in the end: %q", got)
		}
		m.Stop()
		time.Sleep(time.Minute)
		if got := s.take(); got != "" {
			t.Errorf("after the end: %q", got)
		}
	})
}

// TestMeterWithoutTerminal passes lines on, and shows nothing.
func TestMeterWithoutTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s screen
		m := terminal.NewMeter(&s, nil)
		m.Start(func() string { return "reading" })
		time.Sleep(time.Minute)
		fmt.Fprintln(m, "a warning")
		m.Stop()
		if got := s.take(); got != "a warning\n" {
			t.Errorf("%q", got)
		}
	})
}
