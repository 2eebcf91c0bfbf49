package events

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// patience is how long an event is tried again, and pause the time in between,
	// up to a quarter longer: not all nodes should come at the same time.
	patience = 2 * time.Minute
	pause    = 10 * time.Second
	// seriesTime is the time without another event of its kind that ends a series,
	// and how often the count of one is written.
	seriesTime = 6 * time.Minute
)

// writer writes events one after the other. The first event of a kind becomes an
// object; those that follow make it a series and are only counted.
type writer struct {
	connect Connect
	log     *slog.Logger
	failing bool
	series  map[kind]*eventsv1.Event
}

// kind is what the events of a series have in common.
type kind struct {
	severity, reason, action string
	regarding                corev1.ObjectReference
}

func (w *writer) run(ctx context.Context, queue <-chan *eventsv1.Event) {
	count := time.NewTicker(seriesTime)
	defer count.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-queue:
			w.recordEvent(ctx, e)
		case now := <-count.C:
			w.count(ctx, now)
		}
	}
}

// recordEvent writes an event, or the second of a series, or counts it.
func (w *writer) recordEvent(ctx context.Context, e *eventsv1.Event) {
	k := kind{e.Type, e.Reason, e.Action, e.Regarding}
	first, known := w.series[k]
	switch {
	case !known:
		w.series[k] = e
		w.write(ctx, e, e.EventTime)
	case first.Series == nil:
		first.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: e.EventTime}
		w.write(ctx, first, e.EventTime)
	default:
		first.Series.Count++
		first.Series.LastObservedTime = e.EventTime
	}
}

// count writes the counts of series that have changed, and ends the old ones.
func (w *writer) count(ctx context.Context, now time.Time) {
	for k, e := range w.series {
		last := e.EventTime
		if e.Series != nil {
			last = e.Series.LastObservedTime
		}
		recent := now.Sub(last.Time) <= seriesTime
		if e.Series != nil && recent {
			w.write(ctx, e, metav1.NewMicroTime(now))
		}
		if !recent {
			delete(w.series, k)
		}
	}
}

// write tries until an event is written or refused, for some time from since on.
func (w *writer) write(ctx context.Context, e *eventsv1.Event, since metav1.MicroTime) {
	for {
		err := w.send(ctx, e)
		w.logFailure(ctx, err)
		var refused apierrors.APIStatus
		if err == nil || errors.As(err, &refused) || time.Since(since.Time) > patience {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.Jitter(pause, 0.25)):
		}
	}
}

// send makes one attempt: it counts at the event of a series, unless that is gone.
func (w *writer) send(ctx context.Context, e *eventsv1.Event) error {
	const resource = "events"
	client, err := w.connect()
	if err != nil {
		return err
	}
	if e.Series != nil {
		patch, err := json.Marshal(map[string]any{"series": e.Series})
		if err != nil {
			return err
		}
		err = client.Patch(types.StrategicMergePatchType).Namespace(e.Namespace).Resource(resource).Name(e.Name).Body(patch).Do(ctx).Error()
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	err = client.Post().Namespace(e.Namespace).Resource(resource).Body(e).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return nil // an attempt without an answer
	}
	return err
}

func (w *writer) logFailure(ctx context.Context, err error) {
	switch {
	case err == nil && w.failing:
		w.log.Info("events are written again")
	case err != nil && ctx.Err() == nil && !w.failing:
		w.log.Warn("cannot write events; check that the API server is reachable and allows this node to create events in group events.k8s.io", "error", err)
	case err != nil:
		return
	}
	w.failing = err != nil
}
