package kubectl_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/kubectl"
)

// TestPods: 17.10. The API server is asked once for each address, by a field and for names alone.
func TestPods(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		selected := r.URL.Query().Get("fieldSelector")
		if r.URL.Path != "/api/v1/pods" || !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
			t.Errorf("asked for %s as %s", r.URL, r.Header.Get("Accept"))
		}
		switch selected {
		case "status.podIP=10.1.0.7":
			fmt.Fprint(w, `{"items":[{"metadata":{"namespace":"shop","name":"cart-1"}}]}`)
		case "status.podIP=192.0.2.1":
			fmt.Fprint(w, `{"items":[{"metadata":{"namespace":"a","name":"b"}},{"metadata":{"namespace":"c","name":"d"}}]}`)
		case "status.podIP=fd00::7":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods is forbidden","reason":"Forbidden","code":403}`)
		default:
			fmt.Fprint(w, `{"items":[]}`)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "` + server.URL + `"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	pods, err := kubectl.NewPods(kubectl.Access{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for address, want := range map[string]string{"10.1.0.7": "shop/cart-1", "192.0.2.1": "", "10.1.0.8": ""} {
			if got, err := pods.At(t.Context(), netip.MustParseAddr(address)); got != want || err != nil {
				t.Errorf("%s: %q, %v; want %q", address, got, err, want)
			}
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
	if _, err := pods.At(t.Context(), netip.MustParseAddr("fd00::7")); err == nil || !strings.Contains(err.Error(), "look for the pod with the address fd00::7: pods is forbidden") {
		t.Errorf("without the permission: %v", err)
	}
}
