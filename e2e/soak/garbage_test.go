package soak

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
)

// A soak goes on if nftproxy answers late: what a busy machine does to a connection ends one
// attempt only.
func TestGarbageOfBusyProxy(t *testing.T) {
	var asked []string
	outcomes := []func(http.ResponseWriter){
		func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }, // it has waited too long for the request
		func(w http.ResponseWriter) { http.Error(w, "too many profiles", http.StatusTooManyRequests) },
		func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("half a profile"))
		},
		func(w http.ResponseWriter) { _, _ = w.Write([]byte("a profile")) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		outcomes[min(len(asked), len(outcomes))-1](w)
	}))
	defer server.Close()
	dials := 0
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials++; dials < 3 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	collectGarbage(t, strings.TrimPrefix(server.URL, "http://"), dial)
	// Twice, after three attempts that have failed.
	if want := slices.Repeat([]string{"/debug/pprof/heap?gc=1"}, len(outcomes)+1); !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
}
