// Package events reports what this node does and cannot do as Event objects of the
// API group events.k8s.io.
package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record/util"

	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
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
	// maxQueued is how many events wait for the API server.
	maxQueued = 1000
)

// Recorder writes events. The zero Recorder does nothing: it is for sources without
// an API server. Its methods do not block; events that cannot be written within
// minutes are lost.
type Recorder struct {
	queue   chan<- *eventsv1.Event // nil: goes nowhere
	node    string
	noticed map[model.Notice]bool // the last set
	failed  map[Failure]string    // the last set
}

// Failure is what the endpoints of a Service have in common that fail in the same way.
type Failure struct {
	Service model.ServiceName
	Reason  string
}

// Connect returns the client that writes events. It is called for each attempt: the
// kubeconfig of a new node may not exist yet.
type Connect func() (rest.Interface, error)

// New returns a recorder for the node of that name that works until ctx ends. The
// client should be a separate one: many events would delay other requests, because
// each client has a rate limit.
func New(ctx context.Context, connect Connect, node string, log *slog.Logger) *Recorder {
	queue := make(chan *eventsv1.Event, maxQueued)
	w := &writer{connect: connect, log: log, series: make(map[kind]*eventsv1.Event)}
	go w.run(ctx, queue)
	return &Recorder{queue: queue, node: node}
}

// Writes reports whether there is an API server to write to.
func (r *Recorder) Writes() bool { return r.queue != nil }

// Starting reports that the daemon starts to serve this node (12.56).
func (r *Recorder) Starting() {
	r.recordEvent(r.nodeObject(), corev1.EventTypeNormal, "Starting", actionStart, "")
}

// ServerFailed warns that a server of this process cannot listen (12.55); the reason
// is HealthServerFailed or MetricsServerFailed. If the process then ends, the event
// may be lost.
func (r *Recorder) ServerFailed(reason string, err error) {
	r.recordEvent(r.nodeObject(), corev1.EventTypeWarning, reason, actionStart, err.Error())
}

// HealthCheckFailed warns that this node cannot listen on the health check node
// port of a Service (10.23).
func (r *Recorder) HealthCheckFailed(service model.ServiceName, err error) {
	r.recordEvent(service.Object(), corev1.EventTypeWarning, "FailedToStartServiceHealthcheck", "Listen", "node "+r.node+": "+err.Error())
}

// LocalhostFailed warns that this node cannot listen on the NodePort of a Service on
// localhost (6.20).
func (r *Recorder) LocalhostFailed(service model.ServiceName, err error) {
	r.recordEvent(service.Object(), corev1.EventTypeWarning, "FailedToListenOnLocalhost", "Listen", "node "+r.node+": "+err.Error())
}

// EndpointHealth reports that an endpoint of a Service fails its health check on this
// node, or passes it again.
func (r *Recorder) EndpointHealth(service model.ServiceName, endpoint netip.Addr, healthy bool, message string) {
	if healthy {
		r.recordEvent(service.Object(), corev1.EventTypeNormal, "EndpointHealthy", "Check", "node "+r.node+": endpoint "+endpoint.String()+" passes its health check again")
		return
	}
	r.recordEvent(service.Object(), corev1.EventTypeWarning, "EndpointUnhealthy", "Check", "node "+r.node+": endpoint "+endpoint.String()+" fails its health check: "+message)
}

// RulesRepaired warns that another process had changed the rules of this node; first
// describes the first changed objects.
func (r *Recorder) RulesRepaired(process string, first []string) {
	r.recordEvent(r.nodeObject(), corev1.EventTypeWarning, "RulesRepaired", "Repair",
		"process "+process+" has changed rules of nftproxy, which are repaired: "+strings.Join(first, "; "))
}

// Notices warns about the objects of new notices. Calls must not overlap.
func (r *Recorder) Notices(notices []model.Notice) {
	now := make(map[model.Notice]bool, len(notices))
	written := 0
	for _, n := range notices {
		now[n] = true
		if n.Object.Kind == "Balance" { // the API server has none
			continue
		}
		if !r.noticed[n] && written < budget.EventNotices {
			written++
			r.recordEvent(n.Object, corev1.EventTypeWarning, string(n.Reason), "Serve", n.Message)
		}
	}
	r.noticed = now
}

// Failures reports, of the Services whose endpoints fail sampled connections, those that are
// new since the last call, with a message, and those that are gone. Calls must not overlap.
func (r *Recorder) Failures(now map[Failure]string) {
	written := 0
	write := func(f Failure, severity, reason, note string) bool {
		if written++; written > budget.FailureEvents {
			return false
		}
		r.recordEvent(f.Service.Object(), severity, reason, "Sample", "node "+r.node+": "+note)
		return true
	}
	if r.failed == nil {
		r.failed = make(map[Failure]string)
	}
	for _, f := range sortFailures(now) {
		if _, known := r.failed[f]; !known && write(f, corev1.EventTypeWarning, f.Reason, now[f]) {
			r.failed[f] = now[f]
		}
	}
	for _, f := range sortFailures(r.failed) {
		if _, remains := now[f]; !remains && write(f, corev1.EventTypeNormal, f.Reason+"Over", over+r.failed[f]) {
			delete(r.failed, f)
		}
	}
}

// over begins the note of a failure that is over.
const over = "over, as the last samples were answered or a minute had none: "

func sortFailures(all map[Failure]string) []Failure {
	return slices.SortedFunc(maps.Keys(all), func(a, b Failure) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.Reason, b.Reason))
	})
}

func (r *Recorder) nodeObject() model.Object { return model.Object{Kind: "Node", Name: r.node} }

func (r *Recorder) recordEvent(about model.Object, severity, reason, action, note string) {
	if r.queue == nil {
		return
	}
	now := time.Now()
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	select {
	case r.queue <- &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: util.GenerateEventName(about.Name, now.UnixNano()), Namespace: namespace},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: controller,
		ReportingInstance:   cutText(r.node, maxInstance),
		Regarding:           corev1.ObjectReference{APIVersion: "v1", Kind: about.Kind, Namespace: about.Namespace, Name: about.Name},
		Type:                severity, Reason: reason, Action: action, Note: cutText(note, maxNote),
	}:
	default: // lost
	}
}

func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

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
		if !parallel.Wait(ctx, wait.Jitter(pause, 0.25)) {
			return
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
