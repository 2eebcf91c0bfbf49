package serve_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/serve"
)

// TestGuard: a page of another site, whose name leads here, reads nothing (11.14).
func TestGuard(t *testing.T) {
	guarded := serve.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("data")) }), "Node-1", "")
	for _, c := range []struct {
		method, host string
		want         int
	}{
		{"GET", "127.0.0.1:10249", 200},
		{"HEAD", "127.0.0.1", 200},
		{"GET", "[::1]:10249", 200},
		{"GET", "[::1]", 200},
		{"GET", "[fe80::1%25eth0]:10249", 200},
		{"GET", "localhost:8080", 200},
		{"GET", "LOCALHOST.", 200},
		{"GET", "node-1.localhost:1", 200},
		{"GET", "node-1:10249", 200},
		{"GET", "evil.example:10249", 421},
		{"GET", "127.0.0.1.evil.example", 421},
		{"GET", "localhost.evil.example", 421},
		{"GET", "evillocalhost", 421},
		{"GET", "", 421},
		{"GET", "a<script>", 421},
		{"POST", "127.0.0.1", 405},
		{"DELETE", "localhost", 405},
		{"POST", "evil.example", 421},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if w.Code != c.want || (w.Code == 200) != strings.Contains(w.Body.String(), "data") {
			t.Errorf("%s of %q: %d %q, want %d", c.method, c.host, w.Code, w.Body, c.want)
		}
		if w.Code == 200 && (w.Header().Get("X-Frame-Options") != "DENY" || w.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" || w.Header().Get("Cache-Control") != "no-store") {
			t.Errorf("header %v", w.Header())
		}
	}
}

// TestIndex has a link for each page, and its texts are no markup (11.15).
func TestIndex(t *testing.T) {
	w := httptest.NewRecorder()
	serve.Index("<node>", append(serve.Pages{Version: "v1", Profiling: true}.Links(), serve.Link{Path: "/live", Text: `"<&`})).
		ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	for _, want := range []string{`<a href="/statusz">/statusz</a>`, `<a href="/debug/pprof/">`, `<a href="/live">/live</a></dt><dd>&#34;&lt;&amp;</dd>`, "<h1>&lt;node&gt;</h1>"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %q in %s", want, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), "/configz") || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") ||
		!strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
}
