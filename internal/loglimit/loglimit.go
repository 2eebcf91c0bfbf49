// Package loglimit limits the log lines that the authors of objects can cause.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// summaryPause is the time from the first line that is left out to the line that counts those of this time.
const summaryPause = 10 * time.Second

// Limiter returns a token bucket: it allows a number of lines at once, and so many again in each such time.
func Limiter(lines int, in time.Duration) *rate.Limiter {
	return rate.NewLimiter(rate.Every(in/time.Duration(lines)), lines)
}

// New returns a logger for lines about objects. Beyond [budget.ObjectLines] an hour, and
// as many at once, it leaves lines out, and logs how many. log may be nil.
func New(log *slog.Logger) *slog.Logger {
	if log == nil {
		return nil
	}
	s := &state{to: log.Handler(), bucket: Limiter(budget.ObjectLines, time.Hour)}
	return slog.New(&handler{s.to, s})
}

// handler is a [slog.Handler]. Those of derived loggers share the state.
type handler struct {
	slog.Handler
	*state
}

type state struct {
	to     slog.Handler
	bucket *rate.Limiter

	mu   sync.Mutex
	left int // since the last summary
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if h.bucket.Allow() {
		return h.Handler.Handle(ctx, r)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left++; h.left == 1 {
		time.AfterFunc(summaryPause, h.sum)
	}
	return nil
}

func (s *state) sum() {
	s.mu.Lock()
	left := s.left
	s.left = 0
	s.mu.Unlock()
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines about objects are left out; nftproxy status lists problems", 0)
	r.AddAttrs(slog.Int("lines", left))
	_ = s.to.Handle(context.Background(), r) // there is no other place to report it
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.state}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.state}
}
