package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// An incomplete list is never taken for a complete one: a list that ends early,
// in any way, removes no service.
func TestIncompleteLists(t *testing.T) {
	f := newFaulty(t)
	var expired atomic.Int32
	for _, x := range []apiFault{
		{name: "lists cut off, with a proper end", does: relist(f.striking(truncate)), strikes: kinds},
		{name: "lists cut off by a lost connection", does: relist(f.striking(breakMiddle)), strikes: kinds},
		{name: "lists in parts, of which the second has expired", does: relist(expireContinue(&expired))},
		{name: "events told twice", does: twice},
	} {
		f.check(t, x)
	}
	f.load.Check()
	if expired.Load() == 0 {
		t.Error("the second part of a list was never asked for")
	}
}

// A complete but wrong answer cannot be recognised: it is believed until the
// API server returns another state of the same object, or lists everything.
// Services without wrong answers are not affected.
func TestWrongAnswersOfAPIServer(t *testing.T) {
	f := newFaulty(t)
	victim := f.CreateService(testbed.DualStack("victim"))
	f.SetEndpoints(victim, f.Pods[1])
	f.startProxyVia()
	f.becomes(f.canary, f.Pods[1])
	f.Served(victim, f.Pods[1])

	f.serveWrong("a list without a service", relist(without(victim.Name)),
		func() { f.Silent(victim) })
	f.heals("an event of that service", func() { f.touch(victim) }, func() { f.Served(victim, f.Pods[1]) })

	f.becomes(f.canary, f.Pods[2])
	f.becomes(f.canary, f.Pods[1]) // the slices are watched again
	old, err := f.API.DiscoveryV1().EndpointSlices(testbed.Namespace).Get(t.Context(), testbed.SliceName(f.canary, model.IPv4), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.serveWrong("an old version again, after the new one", replay(old), func() {
		f.SetSlice(f.canary, model.IPv4, f.Pods[0])
		f.SetSlice(f.canary, model.IPv6, f.Pods[0]) // what comes later in the same stream has been seen
		testbed.Eventually(t, func() error {
			return testbed.Balanced(f.Client, "tcp", f.canary.Frontend(model.IPv6), []*netlab.Host{f.Pods[0]})
		})
		f.turnsTo(f.canary, f.Pods[1])
	})
	f.heals("the next version", func() { f.SetSlice(f.canary, model.IPv4, f.Pods[2]) }, func() { f.turnsTo(f.canary, f.Pods[2]) })

	f.serveWrong("a deletion without an event", concealDeletions, func() {
		f.DeleteService(victim)
		f.becomes(f.canary, f.Pods[0])
		f.Served(victim, f.Pods[1])
	})
	f.heals("a list", func() { f.set(relist(none)); f.cut() }, func() { f.Silent(victim) })
	f.load.Check()
}

// serveWrong makes the API server answer wrongly until the proxy has applied
// it.
func (f *faulty) serveWrong(name string, does fault, believed func()) {
	f.T.Helper()
	requests, lost := f.load.Totals()
	f.set(does)
	f.cut()
	start := time.Now()
	believed()
	requestsNow, lostNow := f.load.Totals()
	f.T.Logf("%s | believed after %v | %d requests to another service | %d lost",
		name, time.Since(start).Round(time.Millisecond), requestsNow-requests, lostNow-lost)
	f.heal()
}

// heals measures how long the proxy takes to correct its state.
func (f *faulty) heals(by string, act, known func()) {
	f.T.Helper()
	start := time.Now()
	act()
	known()
	f.heal()
	f.T.Logf("    %s heals it after %v", by, time.Since(start).Round(time.Millisecond))
}

// touch makes an event of a service that changes nothing.
func (c *cluster) touch(s testbed.Service) {
	c.T.Helper()
	const patch = `{"metadata": {"labels": {"touched": "yes"}}}`
	_, err := c.API.CoreV1().Services(testbed.Namespace).Patch(c.T.Context(), s.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
}

// relist makes the proxy list everything again.
func relist(list fault) fault {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		switch {
		case isWatch(r):
			refuse(w, http.StatusGone, metav1.StatusReasonExpired)
		case isList(r):
			list(w, r, pass)
		default:
			none(w, r, pass)
		}
	}
}

// truncate ends an answer after its first half as if it were complete.
func truncate(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	r.Header.Del("Accept-Encoding")
	answer := answerOf(r, pass)
	send(w, answer, answer.Body.Bytes()[:answer.Body.Len()/2])
}

// breakMiddle loses the connection in the middle of an answer.
func breakMiddle(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	truncate(w, r, pass)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// expireContinue makes lists come in parts, and forgets them after the first.
func expireContinue(expired *atomic.Int32) fault {
	var mu sync.Mutex
	begun := make(map[string]bool)
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		q := r.URL.Query()
		if q.Get("continue") != "" {
			expired.Add(1)
			refuse(w, http.StatusGone, metav1.StatusReasonExpired)
			return
		}
		mu.Lock()
		begun[r.URL.Path] = !begun[r.URL.Path]
		part := begun[r.URL.Path]
		mu.Unlock()
		if part {
			q.Set("limit", "1")
			q.Del("resourceVersion")
			q.Del("resourceVersionMatch")
			r.URL.RawQuery = q.Encode()
		}
		none(w, r, pass)
	}
}

// event is one of a watch, as JSON.
type event struct {
	Type   string
	Object struct{ Metadata metav1.ObjectMeta }
}

// events passes watches on with each event edited.
func events(w http.ResponseWriter, r *http.Request, pass http.Handler, edit func(e event, line []byte) []byte) {
	if !isWatch(r) {
		none(w, r, pass)
		return
	}
	asJSON(r)
	pass.ServeHTTP(edited(w, func(line []byte) []byte {
		var e event
		if json.Unmarshal(line, &e) != nil {
			return line
		}
		return edit(e, line)
	}), r)
}

func twice(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	events(w, r, pass, func(_ event, line []byte) []byte { return bytes.Repeat(line, 2) })
}

func concealDeletions(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	events(w, r, pass, func(e event, line []byte) []byte {
		if e.Type == "DELETED" {
			return nil
		}
		return line
	})
}

// replay sends a version of an EndpointSlice once more, after a newer one.
func replay(old *discoveryv1.EndpointSlice) fault {
	old.Kind, old.APIVersion = "EndpointSlice", discoveryv1.SchemeGroupVersion.String()
	again, _ := json.Marshal(map[string]any{"type": apiwatch.Modified, "object": old})
	var replayed atomic.Bool
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		events(w, r, pass, func(e event, line []byte) []byte {
			if e.Object.Metadata.Name != old.Name || replayed.Swap(true) {
				return line
			}
			return slices.Concat(line, again, []byte("\n"))
		})
	}
}

// without leaves a Service out of lists.
func without(name string) fault {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if !strings.HasSuffix(r.URL.Path, "/services") {
			none(w, r, pass)
			return
		}
		asJSON(r)
		answer := answerOf(r, pass)
		var list map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil {
			panic(fmt.Errorf("read a list: %w", err))
		}
		var rest []any
		for _, item := range itemsOf(answer.Body.Bytes()) {
			if nameOf(item) != name {
				rest = append(rest, item)
			}
		}
		list["items"] = rest
		body, _ := json.Marshal(list)
		send(w, answer, body)
	}
}

func itemsOf(list []byte) []map[string]any {
	var l struct{ Items []map[string]any }
	_ = json.Unmarshal(list, &l)
	return l.Items
}

func nameOf(item map[string]any) string {
	metadata, _ := item["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}
