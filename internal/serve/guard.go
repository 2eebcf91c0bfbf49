package serve

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Guard protects pages for browsers from the pages of other sites. It answers GET and
// HEAD only, and only if the request names this server by an address, as localhost, or
// by one of the names: a site could let its own name lead to 127.0.0.1 (DNS
// rebinding), and its scripts would read what is served here.
func Guard(next http.Handler, names ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !isNamed(r.Host, names):
			http.Error(w, fmt.Sprintf("%q is not a name of this server: use its IP address or localhost", r.Host), http.StatusMisdirectedRequest)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "read only: use GET", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// isNamed reports whether the Host header of a request, with or without a port, names
// this server.
func isNamed(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.ContainsFunc(names, func(n string) bool {
		return n != "" && strings.EqualFold(n, host)
	})
}
