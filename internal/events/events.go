// Package events reports what this node does and cannot do as Event objects of the
// API group events.k8s.io.
package events

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/kubernetes/scheme"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/internal/model"
)

// controller is the reporting controller of the events (12.56).
const controller = "nftproxy"

const (
	actionStart = "StartKubeProxy"
	// HealthServerFailed and MetricsServerFailed are reasons of
	// [Recorder.ServerFailed].
	HealthServerFailed  = "FailedToStartProxierHealthcheck"
	MetricsServerFailed = "FailedToStartMetricServer"
)

const (
	maxNote     = 1024 // bytes that the API server accepts
	maxInstance = 128  // bytes in the name of a reporting instance
	// maxNotices limits the events for one set of notices: all nodes of a cluster may
	// report the same. The log has all notices.
	maxNotices = 20
)

// Recorder writes events. The zero Recorder does nothing: it is for sources without
// an API server. Its methods do not block; events that cannot be written within
// minutes are lost.
type Recorder struct {
	recorder events.EventRecorder
	node     string
	noticed  map[model.Notice]bool // the last set
}

// New returns a recorder for the node of that name that works until ctx ends. The
// client should be a separate one: many events would delay other requests, because
// each client has a rate limit.
func New(ctx context.Context, client eventsv1client.EventsV1Interface, node string, log *slog.Logger) *Recorder {
	// The sink logs the failures that the library would log.
	ctx = klog.NewContext(ctx, logr.Discard())
	broadcaster := events.NewBroadcaster(&sink{
		EventSinkImpl: events.EventSinkImpl{Interface: client},
		instance:      cut(node, maxInstance),
		log:           log,
	})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		panic(err) // it has been shut down, which only happens below
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return &Recorder{recorder: broadcaster.NewRecorder(scheme.Scheme, controller), node: node}
}

// Starting reports that the daemon starts to serve this node (12.56).
func (r *Recorder) Starting() {
	r.record(r.nodeObject(), corev1.EventTypeNormal, "Starting", actionStart, "")
}

// ServerFailed warns that a server of this process cannot listen (12.55); the reason
// is HealthServerFailed or MetricsServerFailed. If the process then ends, the event
// may be lost.
func (r *Recorder) ServerFailed(reason string, err error) {
	r.record(r.nodeObject(), corev1.EventTypeWarning, reason, actionStart, err.Error())
}

// HealthCheckFailed warns that this node cannot listen on the health check node
// port of a Service (10.23).
func (r *Recorder) HealthCheckFailed(service model.ServiceName, err error) {
	r.record(service.Object(), corev1.EventTypeWarning, "FailedToStartServiceHealthcheck", "Listen", "node "+r.node+": "+err.Error())
}

// RulesRepaired warns that another process had changed the rules of this node; first
// describes the first changed objects.
func (r *Recorder) RulesRepaired(process string, first []string) {
	r.record(r.nodeObject(), corev1.EventTypeWarning, "RulesRepaired", "Repair",
		"process "+process+" has changed rules of nftproxy, which are repaired: "+strings.Join(first, "; "))
}

// Notices warns about the objects of new notices. Calls must not overlap.
func (r *Recorder) Notices(notices []model.Notice) {
	now := make(map[model.Notice]bool, len(notices))
	written := 0
	for _, n := range notices {
		now[n] = true
		if !r.noticed[n] && written < maxNotices {
			written++
			r.record(n.Object, corev1.EventTypeWarning, string(n.Reason), "Serve", n.Message)
		}
	}
	r.noticed = now
}

func (r *Recorder) nodeObject() model.Object { return model.Object{Kind: "Node", Name: r.node} }

func (r *Recorder) record(about model.Object, kind, reason, action, note string) {
	if r.recorder != nil {
		ref := &corev1.ObjectReference{APIVersion: "v1", Kind: about.Kind, Namespace: about.Namespace, Name: about.Name}
		r.recorder.Eventf(ref, nil, kind, reason, action, "%s", cut(note, maxNote))
	}
}

// cut shortens text to n bytes of valid UTF-8.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

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
