package health

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// shop is a namespace with Balances, of which one is usable.
type shop struct{}

func (shop) Serves(n model.ServiceName) (usable, known bool) {
	return n.Name == "up", n.Namespace == "shop"
}

// 10.31: one answer for each Balance, that monitors need not parse.
func TestBalances(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/healthz/{namespace}/{name}", &Balances{shop{}})
	for path, want := range map[string]int{"/healthz/shop/up": 200, "/healthz/shop/down": 503, "/healthz/other/up": 404, "/healthz/shop": 404, "/healthz/shop/up/x": 404} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if w.Code != want {
				t.Errorf("%s %s: %d, want %d", method, path, w.Code, want)
			}
		}
	}
}
