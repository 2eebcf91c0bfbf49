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
	c, err := NewClient(kubectl.Access{Kubeconfig: file}, Target{"kube-system", "kube-proxy", label})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Lists come in pages, and all of them are read.
func TestPages(t *testing.T) {
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		next := map[string]string{"": "b", "b": "c", "c": ""}[r.URL.Query().Get("continue")]
		fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[{"metadata":{"name":"node-%s"}}]}`, next, next)
	})
	var s Status
	err := c.nodes(t.Context(), &s)
	if err != nil || len(s.Nodes) != 3 || s.Nodes[0].Name+s.Nodes[1].Name+s.Nodes[2].Name != "node-node-bnode-c" {
		t.Errorf("%v, %v", s.Nodes, err)
	}
}

// TestCommands: 14.11. The output is a script for a shell, with the flags that reach the same API server. Nothing is
// sent but a request for the DaemonSet.
func TestCommands(t *testing.T) {
	const selector = `{"nodeSelectorTerms":[{"matchExpressions":[{"key":"type","operator":"In","values":["it's"]}]}]}`
	for _, c := range []struct{ strategy, required, want string }{
		{"RollingUpdate", "null", ` -n kube-system patch daemonset kube-proxy --type=merge -p '{"metadata":{"resourceVersion":"7"},"spec":{"template":{"spec":{"affinity":{"nodeAffinity":` +
			`{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"nftproxy.dev/proxy","operator":"NotIn","values":["nftproxy"]}]}]}}}}}}}'`},
		{"OnDelete", selector, ` -n kube-system patch daemonset kube-proxy --type=json -p '[{"op":"test","path":"` + requiredPath + `","value":` + strings.ReplaceAll(selector, "'", `'\''`) +
			`},{"op":"add","path":"` + requiredPath + `/nodeSelectorTerms/0/matchExpressions/-","value":{"key":"nftproxy.dev/proxy","operator":"NotIn","values":["nftproxy"]}}]'`},
	} {
		client := connect(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				t.Errorf("a request to change something: %s", r.Method)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"7"},"spec":{"updateStrategy":{"type":%q},"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":%s}}}}}}`, c.strategy, c.required)
		})
		kubectl := "kubectl --kubeconfig '" + client.access.Kubeconfig + "'"
		wait := kubectl + " -n kube-system rollout status daemonset/kube-proxy\n"
		if c.strategy == "OnDelete" {
			wait = "# Its updateStrategy is OnDelete: pods of other nodes are not restarted. Wait with: nftproxy migrate status\n"
		}
		var out strings.Builder
		if err := client.KeepOff(t.Context(), &out); err != nil || out.String() != kubectl+c.want+"\n"+wait {
			t.Errorf("%s: %v\n%s\nwant\n%s%s\n%s", c.strategy, err, &out, kubectl, c.want, wait)
		}
		out.Reset()
		if err := client.Undo(t.Context(), &out); err != nil || out.String() != "# Nothing to do: DaemonSet kube-system/kube-proxy does not depend on nftproxy.dev/proxy=nftproxy.\n" {
			t.Errorf("undo: %v\n%s", err, &out)
		}
	}
}
