package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
)

// TestAnswerLimits: an answer that is large, or would be large when it is decoded, is refused, and costs
// a few times its size: of one node of a cluster less than of this machine.
func TestAnswerLimits(t *testing.T) {
	problems := func(w http.ResponseWriter, problem string, size int) {
		fmt.Fprintf(w, `{"apiVersion":"nftproxy.dev/v2","findings":{"problems":[%s`, problem)
		for some := strings.Repeat(","+problem, 1<<16/len(problem)); size > 0; size -= len(some) {
			_, _ = fmt.Fprint(w, some)
		}
		fmt.Fprint(w, "]}}")
	}
	const honest = `{"object":{"kind":"Service","namespace":"shop","name":"web"},"reason":"NoEndpoints","message":"connections are rejected"}`
	for name, c := range map[string]struct {
		problem    string
		size       int
		here, node string // errors; empty: none
	}{
		"empty":  {"{}", 9 << 20, "it has too many empty values", "it has too many empty values"},
		"null":   {"null", 9 << 20, "it has too many empty values", "it has too many empty values"},
		"many":   {`{"reason":"ab"}`, 15 << 20, "problems: at most 250000 are read", "problems: at most 250000 are read"},
		"honest": {honest, 12 << 20, "", ""},
		"large":  {honest, 17 << 20, "", "it has more than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { problems(w, c.problem, c.size) }))
			defer s.Close()
			at := netip.MustParseAddrPort(s.Listener.Addr().String())
			node := api.NewClientThrough(http.DefaultTransport, at.Port(), "node-1")
			clients := map[*string]*api.Client{&c.node: node}
			if name != "honest" { // this machine may answer with more, see "large"
				clients[&c.here] = api.NewClient(at)
			}
			for want, client := range clients {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := client.Status(t.Context(), &api.Filter{})
				runtime.ReadMemStats(&after)
				if err == nil && *want != "" || err != nil && (*want == "" || !strings.Contains(err.Error(), *want)) {
					t.Errorf("%s: %v, want %q", client.Name(), err, *want)
				}
				if took := after.TotalAlloc - before.TotalAlloc; took > 24*uint64(c.size) {
					t.Errorf("%s: %d MB for an answer of %d MB", client.Name(), took>>20, c.size>>20)
				}
			}
		})
	}
	if budget.NodeAnswer != 16<<20 {
		t.Error("the sizes above are about another limit")
	}
}
