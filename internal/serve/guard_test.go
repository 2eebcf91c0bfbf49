package serve_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/serve"
)

var data = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "data") })

// TestGuard: a page of another site, whose name leads here, reads nothing (11.14).
func TestGuard(t *testing.T) {
	site := serve.NewSite(serve.Guard{Names: []string{"Node-1", "", "*.Example.net"}}, []serve.Page{
		{Path: "/", Handler: data},
		{Path: "/put", Methods: []string{"PUT"}, Handler: data},
		{Path: "/public", Public: true, Handler: data},
	})
	for _, c := range []struct {
		method, host, path string
		want               int
	}{
		{"GET", "127.0.0.1:10249", "/", 200},
		{"HEAD", "127.0.0.1", "/", 200},
		{"GET", "[::1]:10249", "/", 200},
		{"GET", "[::1]", "/", 200},
		{"GET", "[fe80::1%25eth0]:10249", "/", 200},
		{"GET", "localhost:8080", "/", 200},
		{"GET", "LOCALHOST.", "/", 200},
		{"GET", "node-1.localhost:1", "/", 200},
		{"GET", "node-1:10249", "/", 200},
		{"GET", "a.b.EXAMPLE.net:10249", "/", 200},
		{"GET", "example.net", "/", 421},
		{"GET", "evilexample.net", "/", 421},
		{"GET", "evil.example:10249", "/", 421},
		{"GET", "127.0.0.1.evil.example", "/", 421},
		{"GET", "localhost.evil.example", "/", 421},
		{"GET", "evillocalhost", "/", 421},
		{"GET", "", "/", 421},
		{"GET", "a<script>", "/", 421},
		{"POST", "127.0.0.1", "/", 405},
		{"DELETE", "localhost", "/", 405},
		{"POST", "evil.example", "/", 421},
		{"PUT", "localhost", "/put", 200},
		{"GET", "localhost", "/put", 405},
		{"PUT", "evil.example", "/put", 421},
		{"OPTIONS", "", "/public", 200},
		{"POST", "balancer.example", "/public", 200},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		site.ServeHTTP(w, r)
		if w.Code != c.want || (w.Code == 200) != strings.Contains(w.Body.String(), "data") {
			t.Errorf("%s of %q%s: %d %q, want %d", c.method, c.host, c.path, w.Code, w.Body, c.want)
		}
		if w.Code == 200 && c.path != "/public" && (w.Header().Get("X-Frame-Options") != "DENY" || w.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" || w.Header().Get("Cache-Control") != "no-store") {
			t.Errorf("header %v", w.Header())
		}
	}
}

// TestOtherSites: a script, a form or a part of a page of another site gets no answer,
// also by a correct name: it could keep this server busy. A link can be followed (11.14).
func TestOtherSites(t *testing.T) {
	site := serve.NewSite(serve.Guard{}, []serve.Page{{Path: "/", Methods: []string{"GET", "PUT"}, Handler: data}})
	for _, c := range []struct {
		name   string
		header []string // names and values
		want   int
	}{
		{"no browser", nil, 200},
		{"typed address", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Dest", "document"}, 200},
		{"own script", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Dest", "empty"}, 200},
		{"own script with an origin", []string{"Origin", "http://LOCALHOST:10249"}, 200},
		{"link", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "document"}, 200},
		{"image", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "image"}, 403},
		{"frame", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Dest", "iframe"}, 403},
		{"script", []string{"Origin", "http://evil.example", "Sec-Fetch-Dest", "empty"}, 403},
		{"form", []string{"Origin", "http://localhost:1", "Sec-Fetch-Dest", "document"}, 403},
		{"sandbox", []string{"Origin", "null"}, 403},
		{"malformed", []string{"Origin", "http://[::1"}, 403},
	} {
		for _, method := range []string{"GET", "PUT"} {
			r := httptest.NewRequest(method, "http://localhost:10249/", nil)
			for pair := range slices.Chunk(c.header, 2) {
				r.Header.Set(pair[0], pair[1])
			}
			w := httptest.NewRecorder()
			if site.ServeHTTP(w, r); w.Code != c.want {
				t.Errorf("%s, %s: %d, want %d", c.name, method, w.Code, c.want)
			}
		}
	}
}

// TestIndex has a link for each page with a description, and its texts are no markup
// (11.15).
func TestIndex(t *testing.T) {
	w := httptest.NewRecorder()
	serve.Index("<node>", append(serve.Pages{Version: "v1", Profiling: true}.List(), serve.Page{Path: "/live", About: `"<&`})).
		ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	for _, want := range []string{`<a href="/statusz">/statusz</a>`, `<a href="/debug/pprof/">`, `<a href="/live">/live</a></dt><dd>&#34;&lt;&amp;</dd>`, "<h1>&lt;node&gt;</h1>"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %q in %s", want, w.Body)
		}
	}
	for _, no := range []string{"/configz", "/proxyMode"} {
		if strings.Contains(w.Body.String(), no) {
			t.Errorf("%s is listed in %s", no, w.Body)
		}
	}
	if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") || !strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%v %s", w.Header(), w.Body)
	}
}
