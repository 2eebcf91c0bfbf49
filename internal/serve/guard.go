package serve

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Guard protects pages from the pages of other sites, which a browser that reaches this
// server may show.
type Guard struct {
	// Names are the host names of this server, besides localhost. "*.example.com" is each
	// name below example.com. Empty ones have no effect.
	Names []string
}

// protectPage returns the handler of a page. It answers only the methods of the page, only
// requests that name this server, and none that another site makes.
func (g Guard) protectPage(p Page) http.Handler {
	if p.Public {
		return p.Handler
	}
	methods := p.allowedMethods()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !g.isNamed(r.Host):
			http.Error(w, fmt.Sprintf("%q is not a name of this server: use its IP address or localhost, or allow the name with --allowed-hosts", r.Host),
				http.StatusMisdirectedRequest)
		case isForeign(r):
			http.Error(w, "requests of other sites are not answered", http.StatusForbidden)
		case !slices.Contains(methods, r.Method):
			w.Header().Set("Allow", strings.Join(methods, ", "))
			http.Error(w, fmt.Sprintf("%s is not answered here: use %s", r.Method, methods[0]), http.StatusMethodNotAllowed)
		default:
			isolateAnswer(w.Header())
			p.Handler.ServeHTTP(w, r)
		}
	})
}

// isolateAnswer keeps an answer out of pages of other sites, and out of caches.
func isolateAnswer(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// isNamed reports whether the Host header of a request, with or without a port, names
// this server by an address, as localhost, or by one of its names. A site could let its
// own name lead to 127.0.0.1 (DNS rebinding), and its scripts would read the pages.
func (g Guard) isNamed(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.ContainsFunc(g.Names, func(n string) bool {
		n = strings.ToLower(n)
		if domain, ok := strings.CutPrefix(n, "*"); ok && domain != "" {
			return strings.HasSuffix(host, domain)
		}
		return n != "" && n == host
	})
}

// isForeign reports whether a page of another site makes the request: a script, a form,
// or a part of the page. A link to a page of this server, opened as a whole, is not
// foreign. Clients other than browsers send none of these headers.
func isForeign(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		return err != nil || !strings.EqualFold(u.Host, r.Host)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return r.Header.Get("Sec-Fetch-Dest") != "document"
}
