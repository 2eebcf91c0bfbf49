package events

import (
	"context"
	"log/slog"
	"sync/atomic"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/events"
)

// sink writes events to the API server, and logs the first failure and the recovery.
// The library calls it concurrently.
type sink struct {
	events.EventSinkImpl
	instance string // reporting instance: the node's name instead of the library's host name
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
		s.log.Warn("cannot write events; check that the API server is reachable and allows this node to create events in group events.k8s.io", "error", err)
	}
}
