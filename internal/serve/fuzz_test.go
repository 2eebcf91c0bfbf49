package serve

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// FuzzGuard: no page is answered to a site, by whatever name the browser has reached this server, or whatever origin it says.
func FuzzGuard(f *testing.F) {
	for _, host := range []string{"127.0.0.1:10249", "[::1]:80", "localhost", "evil.example", "metrics.example.com", "127.0.0.1.evil.example", "localhost.evil.example", "[::1].evil.example", "evil.example:localhost", "a@localhost", "localhost.", "[fe80::1%25.evil.example]"} {
		f.Add(host, "")
		f.Add("127.0.0.1", "http://"+host)
	}
	guard := Guard{Names: []string{"", "metrics.example.com", "*.nodes.example"}}
	f.Fuzz(func(t *testing.T, host, origin string) {
		reached := false
		page := guard.protectPage(Page{Path: "/", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, r)
		if reached != (answer.Code == http.StatusOK) {
			t.Errorf("%q, %q: %d", host, origin, answer.Code)
		}
		if !reached {
			return
		}
		if from, err := url.Parse(origin); origin != "" && (err != nil || !strings.EqualFold(from.Host, host)) {
			t.Errorf("the origin %q has a page of %q", origin, host)
		}
		u, err := url.Parse("http://" + host)
		if err != nil || u.User != nil || u.Hostname() == "" {
			return // no browser sends it
		}
		name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
		address, err := netip.ParseAddr(name)
		if err == nil && (address.Zone() == "" || strings.Contains(u.Host, "[")) || name == "localhost" || strings.HasSuffix(name, ".localhost") || name == "metrics.example.com" || strings.HasSuffix(name, ".nodes.example") {
			return
		}
		t.Errorf("a page is answered by the name %q", host)
	})
}
