package events

import (
	"context"
	"log/slog"
	"sync/atomic"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"
)

// sink writes events to the API server, and logs when that begins to fail and when
// it works again. The library calls it concurrently.
type sink struct {
	events.EventSinkImpl
	// instance is the reporting instance: the name of the node, where the
	// library has the host name.
	instance string
	log      *slog.Logger
	failing  atomic.Bool
}

// Create writes a new event.
func (s *sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	e.ReportingInstance = s.instance
	written, err := s.EventSinkImpl.Create(ctx, e)
	s.report(ctx, err)
	return written, err
}

func (s *sink) report(ctx context.Context, err error) {
	switch {
	case err == nil && s.failing.Swap(false):
		s.log.Info("events are written again")
	case err != nil && ctx.Err() == nil && !s.failing.Swap(true):
		s.log.Warn("events cannot be written; check that the API server is there and lets this node create events in group events.k8s.io", "error", err)
	}
}
