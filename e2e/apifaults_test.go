package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// kinds is how many kinds of objects a proxy reads.
const kinds = 4

// apiFault is a fault of the connection with the API server.
type apiFault struct {
	name string
	does fault
	// begin starts the fault on open connections; nil: they are cut.
	begin func(f *faulty)
	// end ends the fault on open connections; nil: they stay as they are.
	end func(f *faulty)
	// strikes is how many requests the fault must hit before it ends, during
	// which no change gets through; zero: it ends when a change gets through.
	strikes int32
	env     []string // of the proxy; E2E_LONG=1: none, which is what users have
}

// faulty is a cluster with a fault proxy, and two services under load: one that
// does not change, and one that does.
type faulty struct {
	*cluster
	*faultProxy
	web, canary testbed.Service
	load        *testbed.Load
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	c := newCluster(t, 3, testbed.WithoutOwnEndpoint)
	f := &faulty{cluster: c, faultProxy: c.startFaultProxy()}
	f.web, f.canary = c.CreateService(testbed.DualStack("web")), c.CreateService(testbed.DualStack("canary"))
	c.SetEndpoints(f.web, c.Pods[:2]...)
	c.SetEndpoints(f.canary, c.Pods[2])
	proxy := c.startProxyVia()
	c.Served(f.web, c.Pods[:2]...)
	c.Served(f.canary, c.Pods[2])
	proxy.Stop(t)
	f.load = c.StartLoad(f.web)
	return f
}

// check runs a new proxy through a fault. Only the change made during it
// changes the rules, and no request to the other service fails.
func (f *faulty) check(t *testing.T, x apiFault) {
	if os.Getenv("E2E_LONG") != "" {
		x.env = nil
	}
	proxy := f.startProxyVia(x.env...)
	f.becomes(f.canary, f.Pods[1])
	f.becomes(f.canary, f.Pods[2])
	rules, before := f.Rules(), f.Generation()
	requests, lost := f.load.Totals()

	f.strikes.Store(0)
	f.set(x.does)
	if x.begin == nil {
		x.begin = (*faulty).cut
	}
	x.begin(f)
	f.SetSlice(f.canary, model.IPv4, f.Pods[0])
	changed := time.Now()
	if x.strikes > 0 {
		testbed.Eventually(t, func() error { return f.struck(x.strikes) })
		await.Span(moment) // enough to do something wrong
		f.Commits(before, 0, x.name)
	} else {
		f.turnsTo(f.canary, f.Pods[0])
	}
	seen := time.Since(changed)
	f.heal()
	if x.end != nil {
		x.end(f)
	}
	ended := time.Now()
	f.turnsTo(f.canary, f.Pods[0])
	recovered := time.Since(ended)
	f.Commits(before, 1, x.name+", and one change")
	f.becomes(f.canary, f.Pods[2])
	f.unchanged(rules, x.name)

	what := "the change came after it"
	if x.strikes == 0 {
		what = fmt.Sprintf("the change came after %v", seen.Round(time.Millisecond))
	}
	requestsNow, lostNow := f.load.Totals()
	fmt.Fprintf(t.Output(), "%s | %s | recovered after %v | %d requests | %d lost\n",
		x.name, what, recovered.Round(time.Millisecond), requestsNow-requests, lostNow-lost)
	proxy.Stop(t)
}

// turnsTo waits until a service is answered by a pod.
func (c *cluster) turnsTo(s testbed.Service, p *netlab.Host) {
	c.T.Helper()
	testbed.Eventually(c.T, func() error { return testbed.Balanced(c.Client, "tcp", s.Frontend(model.IPv4), []*netlab.Host{p}) })
}

// A slow, silent, failing or garbling API server costs no request, and only
// real changes are committed.
func TestFaultsOfAPIServer(t *testing.T) {
	f := newFaulty(t)
	for _, x := range []apiFault{
		{name: "slow answers", does: slow},
		{name: "requests without an answer", does: f.striking(hang), strikes: kinds},
		{name: "half-open connections", does: none, begin: (*faulty).bury, strikes: 1,
			env: []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=1"}},
		{name: "answers broken off", does: f.striking(breakOff), strikes: kinds},
		{name: "connections reset every 300 ms", does: none, begin: (*faulty).flap},
		{name: "429", does: f.striking(status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)), strikes: kinds},
		{name: "500", does: f.striking(status(http.StatusInternalServerError, metav1.StatusReasonInternalError)), strikes: kinds},
		{name: "503", does: f.striking(status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)), strikes: kinds},
		{name: "401", does: f.striking(status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized)), strikes: kinds},
		{name: "events cut in the middle", does: f.striking(cutEvents), strikes: kinds},
		{name: "garbage", does: f.striking(garbage), strikes: kinds},
	} {
		f.check(t, x)
	}
	f.load.Check()
}

// striking counts what a fault does.
func (m *faultProxy) striking(does fault) fault {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		m.strikes.Add(1)
		does(w, r, pass)
	}
}

// struck returns an error until a fault has hit enough requests.
func (m *faultProxy) struck(enough int32) error {
	if n := m.strikes.Load(); n < enough {
		return fmt.Errorf("%d requests were hit, want %d", n, enough)
	}
	return nil
}

// slow lets answers drip.
func slow(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	const drop, delay = 256, 20 * time.Millisecond
	await.Pace(r.Context().Done(), delay)
	pass.ServeHTTP(chunks{w, func(p []byte) error {
		for len(p) > 0 {
			n := min(drop, len(p))
			if _, err := w.Write(p[:n]); err != nil {
				return err
			}
			_ = http.NewResponseController(w).Flush()
			await.Pace(r.Context().Done(), delay)
			p = p[n:]
		}
		return nil
	}}, r)
}

// hang keeps requests for a while and breaks them off then.
func hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	await.Pace(r.Context().Done(), time.Second)
	panic(http.ErrAbortHandler)
}

// breakOff ends every answer before it begins.
func breakOff(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// flap resets connections again and again, for longer than the client library
// waits the first times.
func (f *faulty) flap() {
	for range 10 {
		await.Span(300 * time.Millisecond)
		f.cut()
	}
}

func status(code int, reason metav1.StatusReason) fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) { refuse(w, code, reason) }
}

// refuse answers as the API server does when something fails.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "made to fail",
	})
}

// cutEvents ends watches in the middle of their first piece. Lists, which would
// return the same objects, end immediately.
func cutEvents(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	if isList(r) {
		breakOff(w, r, pass)
	}
	pass.ServeHTTP(chunks{w, func(p []byte) error {
		_, _ = w.Write(p[:len(p)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}}, r)
}

// garbage answers with bytes that mean nothing.
func garbage(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	random := rand.New(rand.NewPCG(1, 2))
	body := make([]byte, 4096)
	for i := range body {
		body[i] = byte(random.Uint32())
	}
	_, _ = w.Write(body)
}
