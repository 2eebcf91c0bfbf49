package health

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/serve"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

// state is a proxy whose progress and node a test changes.
type state struct {
	Progress
	node     *model.Node
	unusable time.Time // since then; zero: the source can be used
	answered []string
}

// newState returns a node that is there, and a proxy that has started now.
func newState() *state {
	return &state{Progress: Progress{Started: time.Now()}, node: &model.Node{Name: "node-1"}}
}

func (s *state) proxy() *Proxy {
	return &Proxy{
		Families:   model.Families[:],
		SyncPeriod: 30 * time.Second,
		State:      facts{s},
	}
}

// facts implements [State].
type facts struct{ *state }

func (f facts) Progress() Progress        { return f.state.Progress }
func (f facts) Node() *model.Node         { return f.node }
func (f facts) SourceUnusable() time.Time { return f.unusable }
func (f facts) Answered(path string, code int) {
	f.answered = append(f.answered, path+" "+http.StatusText(code))
}

// get asks at a path.
func (s *state) get(path string) (code int, body string) {
	w := httptest.NewRecorder()
	s.proxy().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// expect compares the status codes of /healthz and /livez.
func (s *state) expect(t *testing.T, when string, healthz, livez int) {
	t.Helper()
	for path, want := range map[string]int{"/healthz": healthz, "/livez": livez} {
		if code, body := s.get(path); code != want {
			t.Errorf("%s: %s answers %d, want %d: %s", when, path, code, want, body)
		}
	}
}

// TestUnusableSource: 10.26, the node serves on, so only the body shows it, without
// names of files and objects.
func TestUnusableSource(t *testing.T) {
	s := newState()
	s.LastSync = s.Started
	p := s.proxy()
	for _, c := range []struct {
		since time.Time
		want  string // at the end of the body
	}{
		{time.Time{}, `"IPv6":{"lastUpdated":"TIME","healthy":true}}}`},
		{time.Unix(1000, 0), `,"source":{"usable":false,"since":"1970-01-01T00:16:40Z","reason":"the input cannot be used; the rules serve what was read before; \"nftproxy status\" on the node shows the error"}}`},
	} {
		s.unusable = c.since
		for _, path := range []string{"/healthz", "/livez"} {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			want := strings.ReplaceAll(c.want, "TIME", s.Started.UTC().Format(time.RFC3339Nano))
			if w.Code != http.StatusOK || !strings.HasSuffix(w.Body.String(), want) {
				t.Errorf("%s: %d %s, want 200 and %s", path, w.Code, w.Body, want)
			}
		}
	}
}

// TestUnusableSourceAtStart: 10.26. Load balancers do not use a node that has applied
// nothing yet, because the source cannot be used.
func TestUnusableSourceAtStart(t *testing.T) {
	s := newState()
	p := s.proxy()
	s.unusable = time.Unix(1000, 0)
	get := func(path string, want int, says string) {
		t.Helper()
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want || !strings.Contains(w.Body.String(), says) {
			t.Errorf("%s: %d %s, want %d and %q", path, w.Code, w.Body, want, says)
		}
	}
	get("/healthz", http.StatusServiceUnavailable, "no rules were applied yet")
	get("/livez", http.StatusOK, "no rules were applied yet")
	s.LastSync = time.Now()
	get("/healthz", http.StatusOK, "the rules serve what was read before")
	s.unusable, s.LastSync = time.Time{}, time.Time{}
	get("/healthz", http.StatusOK, "")
}

// oneConn is a listener for one connection in memory.
type oneConn chan net.Conn

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l oneConn) Close() error   { return nil }
func (l oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// talk sends one request to a server and returns all bytes of its answer.
func talk(t *testing.T, h http.Handler, request string) string {
	t.Helper()
	l := make(oneConn)
	go serve.NewHTTP(h, 0, slog.New(slog.DiscardHandler)).Serve(l)
	defer close(l)
	ours, theirs := net.Pipe()
	l <- theirs
	go io.WriteString(ours, request)
	answer, err := io.ReadAll(ours)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// TestProxyAnswers compares all bytes of the answers: 10.2 to 10.4 and 10.9.
// The clock of the test begins at 2000-01-01.
func TestProxyAnswers(t *testing.T) {
	const headers = "Content-Type: application/json\r\n" +
		"X-Content-Type-Options: nosniff\r\n" +
		"Date: Sat, 01 Jan 2000 00:10:00 GMT\r\n" +
		"Content-Length: LENGTH\r\n" +
		"Connection: close\r\n\r\n"
	for _, c := range []struct {
		name, path, status string
		arrange            func(*state)
		want               string
	}{
		{"10.3 healthy", "/healthz", "200 OK", func(s *state) { s.LastSync = s.Started.Add(time.Minute + 5*time.Nanosecond) },
			`{"lastUpdated":"2000-01-01T00:10:00.000000007Z","currentTime":"2000-01-01T00:10:00.000000007Z","nodeEligible":true,"healthy":true,` +
				`"status":{"IPv4":{"lastUpdated":"2000-01-01T00:01:00.000000005Z","healthy":true},"IPv6":{"lastUpdated":"2000-01-01T00:01:00.000000005Z","healthy":true}}}`},
		{"10.3 live", "/livez", "200 OK", func(s *state) { s.LastSync = s.Started.Add(time.Minute) },
			`{"lastUpdated":"2000-01-01T00:10:00.000000007Z","currentTime":"2000-01-01T00:10:00.000000007Z","healthy":true,` +
				`"status":{"IPv4":{"lastUpdated":"2000-01-01T00:01:00Z","healthy":true},"IPv6":{"lastUpdated":"2000-01-01T00:01:00Z","healthy":true}}}`},
		{"10.8 not eligible", "/healthz", "503 Service Unavailable", func(s *state) { s.LastSync, s.node = s.Started.Add(time.Minute), nil },
			`{"lastUpdated":"2000-01-01T00:01:00Z","currentTime":"2000-01-01T00:10:00.000000007Z","nodeEligible":false,"healthy":true,` +
				`"status":{"IPv4":{"lastUpdated":"2000-01-01T00:01:00Z","healthy":true},"IPv6":{"lastUpdated":"2000-01-01T00:01:00Z","healthy":true}}}`},
		{"10.4 not healthy", "/healthz", "503 Service Unavailable", func(s *state) { s.LastSync, s.Pending = s.Started.Add(time.Minute), s.Started.Add(2*time.Minute) },
			`{"lastUpdated":"2000-01-01T00:01:00Z","currentTime":"2000-01-01T00:10:00.000000007Z","nodeEligible":true,"healthy":false,` +
				`"status":{"IPv4":{"lastUpdated":"2000-01-01T00:01:00Z","healthy":false},"IPv6":{"lastUpdated":"2000-01-01T00:01:00Z","healthy":false}}}`},
		{"10.9 never synced", "/livez", "503 Service Unavailable", func(s *state) { s.Pending = s.Started },
			`{"lastUpdated":"2000-01-01T00:00:00Z","currentTime":"2000-01-01T00:10:00.000000007Z","healthy":false,` +
				`"status":{"IPv4":{"lastUpdated":"2000-01-01T00:00:00Z","healthy":false},"IPv6":{"lastUpdated":"2000-01-01T00:00:00Z","healthy":false}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newState()
				c.arrange(s)
				time.Sleep(10*time.Minute + 7*time.Nanosecond)
				got := talk(t, s.proxy(), "GET "+c.path+" HTTP/1.1\r\nHost: node-1\r\nConnection: close\r\n\r\n")
				want := "HTTP/1.1 " + c.status + "\r\n" + strings.Replace(headers, "LENGTH", strconv.Itoa(len(c.want)), 1) + c.want
				if got != want {
					t.Errorf("answer:\n%s\nwant:\n%s", got, want)
				}
			})
		})
	}
}

// TestOneFamily: 10.3, the families that are served have a status.
func TestOneFamily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			families []model.Family
			want     string
		}{
			{[]model.Family{model.IPv6}, `"healthy":true,"status":{"IPv6":{"lastUpdated":"2000-01-01T00:00:00Z","healthy":true}}}`},
			{nil, `"healthy":true}`},
		} {
			p := newState().proxy()
			p.Families = c.families
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
			if got := w.Body.String(); !strings.HasSuffix(got, c.want) {
				t.Errorf("%v: %s", c.families, got)
			}
		}
	})
}

// TestPathsAndMethods: 10.1. Only answers at the two paths are counted.
func TestPathsAndMethods(t *testing.T) {
	s := newState()
	p := s.proxy()
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"} {
		for path, want := range map[string]int{
			"/healthz": 200, "/livez": 200, "/healthz?verbose=true": 200,
			"/": 404, "/readyz": 404, "/healthz/": 404, "/livez/ping": 404, "//healthz": 404, "/metrics": 404,
		} {
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest(method, "http://node-1"+path, nil))
			if w.Code != want {
				t.Errorf("%s %s: %d, want %d", method, path, w.Code, want)
			}
		}
	}
	if n := len(s.answered); n != 7*3 {
		t.Errorf("%d answers counted: %v", n, s.answered)
	}
}

// TestAnswered: what metrics count.
func TestAnswered(t *testing.T) {
	s := newState()
	s.node = nil
	s.get("/healthz")
	s.get("/livez")
	if got := strings.Join(s.answered, ", "); got != "/healthz Service Unavailable, /livez OK" {
		t.Errorf("counted %s", got)
	}
}

// TestPendingTooLong: 10.5, 10.6 and P70.
func TestPendingTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState()
		s.LastSync = time.Now()
		time.Sleep(100 * time.Hour)
		s.expect(t, "nothing asked for", 200, 200)
		s.Pending = time.Now()
		time.Sleep(59900 * time.Millisecond)
		s.expect(t, "asked 59.9 s ago", 200, 200)
		time.Sleep(100 * time.Millisecond)
		s.expect(t, "asked 60 s ago", 503, 503)
		if s.proxy().Healthy() {
			t.Error("healthy")
		}
		s.Pending, s.LastSync = time.Time{}, time.Now()
		s.expect(t, "after a sync", 200, 200)
		// P71, the other way round: what one family waits for, both wait for.
		s.Pending = time.Now().Add(-time.Hour)
		if _, body := s.get("/livez"); strings.Count(body, `"healthy":false`) != 3 {
			t.Errorf("after an hour: %s", body)
		}
	})
}

// TestStarting: 10.7, 10.14 and P75. The first sync counts as asked for at the
// start.
func TestStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState()
		s.Pending = s.Started
		s.expect(t, "at the start", 200, 200)
		time.Sleep(time.Minute - time.Nanosecond)
		s.expect(t, "within a minute", 200, 200)
		time.Sleep(time.Nanosecond)
		s.expect(t, "no sync for a minute", 503, 503)
	})
}

// TestNode: 10.10, 10.11 and P72. The objects are those of Kubernetes.
func TestNode(t *testing.T) {
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Value: "v", Effect: effect}} }
	}
	now := metav1.Now()
	const autoscaler = "ToBeDeletedByClusterAutoscaler"
	s := newState()
	s.node = nil
	s.expect(t, "never seen", 503, 200)
	for _, c := range []struct {
		name    string
		change  func(*corev1.Node)
		healthz int
	}{
		{"plain", func(*corev1.Node) {}, 200},
		{"autoscaler, NoSchedule", taint(autoscaler, corev1.TaintEffectNoSchedule), 503},
		{"autoscaler, PreferNoSchedule", taint(autoscaler, corev1.TaintEffectPreferNoSchedule), 503},
		{"without the taint again", func(*corev1.Node) {}, 200},
		{"other taint", taint("node.kubernetes.io/not-ready", corev1.TaintEffectNoExecute), 200},
		{"cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true }, 200},
		{"being deleted", func(n *corev1.Node) { n.DeletionTimestamp = &now }, 503},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
		c.change(n)
		s.node, _ = convert.Node(n)
		s.expect(t, c.name, c.healthz, 200)
	}
}
