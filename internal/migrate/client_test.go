package migrate

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/kubectl"
)

// connect returns a client of a server.
func connect(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "` + server.URL + `"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Access{kubectl.Access{Kubeconfig: file}}.Client(Target{"kube-system", "kube-proxy", label})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A client that keeps changing the affinity ends the attempts, with an error that
// says so; other refusals are not repeated.
func TestChangeGivesUp(t *testing.T) {
	for code, want := range map[int]struct {
		patches int
		text    string
	}{
		http.StatusUnprocessableEntity: {attempts, "another client keeps changing its affinity"},
		http.StatusConflict:            {attempts, "patch DaemonSet kube-system/kube-proxy: "},
		http.StatusForbidden:           {1, "not allowed here"},
	} {
		patches := 0
		c := connect(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.Method == http.MethodPatch:
				patches++
				w.WriteHeader(code)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not allowed here","reason":%q,"code":%d}`,
					map[int]string{422: "Invalid", 409: "Conflict", 403: "Forbidden"}[code], code)
			case strings.HasSuffix(r.URL.Path, "/nodes"):
				fmt.Fprint(w, `{"metadata":{},"items":[]}`)
			default:
				fmt.Fprint(w, `{"metadata":{"name":"kube-proxy"},"spec":{"template":{"spec":{}}}}`)
			}
		})
		_, err := c.KeepOff(t.Context(), false)
		if err == nil || !strings.Contains(err.Error(), want.text) || patches != want.patches {
			t.Errorf("status %d: %d patches, %v", code, patches, err)
		}
	}
}

// Lists come in pages, and all of them are read.
func TestPages(t *testing.T) {
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		next := map[string]string{"": "b", "b": "c", "c": ""}[r.URL.Query().Get("continue")]
		fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[{"metadata":{"name":"node-%s"}}]}`, next, next)
	})
	names, err := c.labelled(t.Context())
	if err != nil || fmt.Sprint(names) != "[node- node-b node-c]" {
		t.Errorf("%v, %v", names, err)
	}
}

// TestOnDelete: 14.11. With updateStrategy OnDelete there is no rollout to wait for.
func TestOnDelete(t *testing.T) {
	for strategy, want := range map[string]string{
		"":              "kubectl -n kube-system rollout status daemonset/kube-proxy",
		"RollingUpdate": "kubectl -n kube-system rollout status daemonset/kube-proxy",
		"OnDelete":      "pods of other nodes are not restarted. Wait for that:\n  nftproxy migrate status\n",
	} {
		c := connect(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if strings.HasSuffix(r.URL.Path, "/nodes") {
				fmt.Fprint(w, `{"metadata":{},"items":[]}`)
				return
			}
			fmt.Fprintf(w, `{"metadata":{"name":"kube-proxy"},"spec":{"updateStrategy":{"type":%q},"template":{"spec":{}}}}`, strategy)
		})
		ch, err := c.KeepOff(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := ch.Print(&out, false); err != nil || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "rollout") != strings.Contains(want, "rollout") {
			t.Errorf("%s: %v\n%s", strategy, err, &out)
		}
	}
}
