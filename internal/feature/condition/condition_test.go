package condition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/health"
)

// server has one Node, and counts the requests. It merges patches as an API server does.
type server struct {
	t *testing.T

	mu      sync.Mutex // the test holds it while the keeper waits, see [lab.pass]
	node    corev1.Node
	asked   []string // methods, with the path of patches
	refuses int      // so many requests
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(code int, body []byte) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
	}
	if s.refuses > 0 {
		s.refuses--
		s.asked = append(s.asked, "refused")
		return answer(http.StatusForbidden, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes is forbidden","reason":"Forbidden","code":403}`))
	}
	s.asked = append(s.asked, r.Method)
	want := "/api/v1/nodes/node-1"
	before, _ := json.Marshal(s.node)
	if r.Method == http.MethodPatch {
		want += "/status"
		patch, _ := io.ReadAll(r.Body)
		after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
		if err != nil {
			s.t.Errorf("patch %s: %v", patch, err)
		}
		s.node = corev1.Node{}
		if err := json.Unmarshal(after, &s.node); err != nil {
			s.t.Error(err)
		}
		before = after
	}
	if r.URL.Path != want {
		s.t.Errorf("%s %s, want %s", r.Method, r.URL.Path, want)
	}
	return answer(http.StatusOK, before)
}

func (s *server) connect() (rest.Interface, error) {
	c := &rest.Config{Host: "http://server", Transport: s, APIPath: "/api", QPS: -1}
	c.GroupVersion = &corev1.SchemeGroupVersion
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, metav1.Unversioned) // errors
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(c)
}

// ours returns the condition, or the zero one.
func (s *server) ours() corev1.NodeCondition {
	for _, c := range s.node.Status.Conditions {
		if c.Type == Type {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// lab runs a keeper with a state that a test sets.
type lab struct {
	*server
	*Keeper
	log   bytes.Buffer
	state health.Programmed
	ok    bool
}

func run(t *testing.T, f func(t *testing.T, l *lab)) {
	synctest.Test(t, func(t *testing.T) {
		l := &lab{server: &server{t: t}, ok: true}
		l.server.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n := &feature.Node{Config: new(config.Config), Condition: l.connect, Log: slog.New(slog.NewTextHandler(&l.log, nil))}
		n.Config.Node.NodeName = "node-1"
		n.Serve(serving{l: l})
		l.Keeper = newKeeper(n)
		l.mu.Lock()
		defer l.mu.Unlock()
		go l.Run(t.Context())
		f(t, l)
	})
}

// serving is what the node serves.
type serving struct {
	feature.Serving
	l *lab
}

func (s serving) Programmed() (health.Programmed, bool) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.ok
}

func (l *lab) set(s health.Programmed) {
	l.state = s
	l.FollowSync(nil)
	l.pass(0)
}

// pass lets the keeper run for a time.
func (l *lab) pass(d time.Duration) {
	l.mu.Unlock()
	defer l.mu.Lock()
	time.Sleep(d)
	synctest.Wait()
}

var yes, no = health.Programmed{Yes: true, Reason: "RulesApplied", Message: "they follow"}, health.Programmed{Yes: false, Reason: "NotSynced", Message: "not yet"}

// TestChanges: 10.27, 10.29. A change is written at once, and nothing else of the Node; what
// the Node already says is not.
func TestChanges(t *testing.T) {
	run(t, func(t *testing.T, l *lab) {
		l.set(no)
		first := l.ours()
		if first.Status != corev1.ConditionFalse || first.Reason != no.Reason || first.Message != no.Message || first.LastTransitionTime.IsZero() {
			t.Errorf("the Node has %+v", first)
		}
		l.pass(2 * time.Second)
		l.set(health.Programmed{Yes: false, Reason: "ChangesPending", Message: "for too long"})
		if c := l.ours(); c.Reason != "ChangesPending" || !c.LastTransitionTime.Equal(&first.LastTransitionTime) || !c.LastHeartbeatTime.After(first.LastHeartbeatTime.Time) {
			t.Errorf("another reason is a transition: %+v, before %+v", c, first)
		}
		l.set(yes)
		if c := l.ours(); c.Status != corev1.ConditionTrue || !c.LastTransitionTime.After(first.LastTransitionTime.Time) {
			t.Errorf("another status is no transition: %+v, before %+v", c, first)
		}
		if all := l.server.node.Status.Conditions; len(all) != 2 || !slices.ContainsFunc(all, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }) {
			t.Errorf("conditions %+v", all)
		}
		l.ok = false
		l.set(no)
		if c := l.ours(); c.Status != corev1.ConditionTrue {
			t.Errorf("an unknown state is written: %+v", c)
		}
		if l.log.Len() > 0 {
			t.Error(l.log.String())
		}
	})
}

// TestRestart: 10.29. A process that finds its state on the Node writes nothing.
func TestRestart(t *testing.T) {
	run(t, func(t *testing.T, l *lab) {
		l.server.node.Status.Conditions = append(l.server.node.Status.Conditions, corev1.NodeCondition{Type: Type, Status: corev1.ConditionTrue, Reason: yes.Reason, Message: yes.Message})
		l.set(yes)
		l.pass(time.Hour)
		if n := len(l.asked); slices.Contains(l.asked, http.MethodPatch) || n < 9 || n > 13 {
			t.Errorf("in an hour the API server was asked %v", l.asked)
		}
	})
}

// TestFlapping: 10.29. A state that changes every second costs few writes, and the last one is
// written.
func TestFlapping(t *testing.T) {
	run(t, func(t *testing.T, l *lab) {
		for i := range 600 {
			l.set([]health.Programmed{yes, no}[i%2])
			l.pass(time.Second)
		}
		if n := len(l.asked); n > 2*(600/10+writes) {
			t.Errorf("%d requests in ten minutes", n)
		}
		l.set(yes)
		l.pass(2 * pause)
		if c := l.ours(); c.Status != corev1.ConditionTrue {
			t.Errorf("the last state is not written: %+v", c)
		}
	})
}

// TestOthers: 10.29. What another program did to the condition is repaired.
func TestOthers(t *testing.T) {
	run(t, func(t *testing.T, l *lab) {
		l.set(yes)
		l.server.node.Status.Conditions = l.server.node.Status.Conditions[:1] // a Node that was made anew
		l.pass(2 * recheck)
		if c := l.ours(); c.Status != corev1.ConditionTrue {
			t.Errorf("the Node has %+v", l.server.node.Status.Conditions)
		}
	})
}

// TestRefused: 10.29. Attempts that fail become rare, are logged once, and end with success.
func TestRefused(t *testing.T) {
	run(t, func(t *testing.T, l *lab) {
		l.refuses = 1000
		l.set(yes)
		l.pass(time.Hour)
		if n := len(l.asked); n < 10 || n > 20 {
			t.Errorf("%d attempts in an hour", n)
		}
		if text := l.log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "nodes/status") || !strings.Contains(text, "nodes is forbidden") {
			t.Errorf("log: %s", text)
		}
		l.refuses = 0
		l.pass(2 * recheck)
		if c := l.ours(); c.Status != corev1.ConditionTrue {
			t.Errorf("the Node has %+v", c)
		}
		if text := l.log.String(); strings.Count(text, "level=") != 2 || !strings.Contains(text, "written again") {
			t.Error(fmt.Sprint("log: ", text))
		}
	})
}
