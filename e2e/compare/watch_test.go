package compare

import (
	"context"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// apiEvent is an event of the API server.
type apiEvent struct {
	seen time.Time
	kind watch.EventType
	name string
	// first is the address of the first endpoint of an EndpointSlice.
	first string
	err   error // after which there are no more events
}

// apiWatch watches Services and EndpointSlices as a proxy does, and does
// nothing with them: no proxy can be faster.
type apiWatch struct {
	services, slices chan apiEvent
}

// watchAPI watches until the end of the test, over a connection of its own.
func watchAPI(p *testbed.Population) *apiWatch {
	t := p.C.T
	t.Helper()
	w := &apiWatch{make(chan apiEvent, 1<<16), make(chan apiEvent, 1<<16)}
	api := p.C.ClientFor(p.Config)
	services, slices := api.CoreV1().Services(testbed.Namespace), api.DiscoveryV1().EndpointSlices(testbed.Namespace)
	list, err := services.List(t.Context(), metav1.ListOptions{Limit: 1}) // its resource version is that of everything
	if err != nil {
		t.Fatal(err)
	}
	go follow(t.Context(), services.Watch, list.ResourceVersion, w.services)
	go follow(t.Context(), slices.Watch, list.ResourceVersion, w.slices)
	return w
}

// follow passes on the events after a resource version. The server ends a watch
// now and then, for example of a client that was slow for a moment; follow then
// resumes it.
func follow(ctx context.Context, open func(context.Context, metav1.ListOptions) (watch.Interface, error), after string, into chan<- apiEvent) {
	defer close(into)
	for {
		events, err := open(ctx, metav1.ListOptions{ResourceVersion: after})
		if err != nil {
			into <- apiEvent{err: err}
			return
		}
		for e := range events.ResultChan() {
			seen := time.Now()
			object, err := meta.Accessor(e.Object)
			if err != nil {
				into <- apiEvent{err: apierrors.FromObject(e.Object)}
				return
			}
			a := apiEvent{seen: seen, kind: e.Type, name: object.GetName()}
			if s, ok := e.Object.(*discoveryv1.EndpointSlice); ok && len(s.Endpoints) > 0 {
				a.first = s.Endpoints[0].Addresses[0]
			}
			after = object.GetResourceVersion()
			into <- a
		}
	}
}

// nextEvent waits for an event.
func nextEvent(t testing.TB, events <-chan apiEvent) apiEvent {
	t.Helper()
	late, cancel := context.WithTimeout(t.Context(), testbed.Patience)
	defer cancel()
	select {
	case e, ok := <-events:
		if !ok || e.err != nil {
			t.Fatalf("watch of the API server: %v", e.err)
		}
		return e
	case <-late.Done():
		t.Fatalf("no event of the API server for %v", testbed.Patience)
		return apiEvent{}
	}
}

// eventOf returns the first event about an object of a kind; others are passed
// over.
func eventOf(t testing.TB, events <-chan apiEvent, kind watch.EventType, name string) apiEvent {
	t.Helper()
	for {
		if e := nextEvent(t, events); e.kind == kind && e.name == name {
			return e
		}
	}
}
