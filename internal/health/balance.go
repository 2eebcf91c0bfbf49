package health

import (
	"net/http"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Balances answers whether a Balance has a usable server, at /healthz/NAMESPACE/NAME: 200 or 503,
// and 404 if there is none of this name. Usable returns that; it is safe for concurrent use.
type Balances struct {
	Usable func(model.ServiceName) (usable, known bool)
}

// ServeHTTP answers any method, like [Proxy].
func (b *Balances) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	usable, known := b.Usable(model.ServiceName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")})
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	code, text := http.StatusServiceUnavailable, "unusable\n"
	switch {
	case !known:
		code, text = http.StatusNotFound, "unknown\n"
	case usable:
		code, text = http.StatusOK, "usable\n"
	}
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // an error: the client is gone
}
