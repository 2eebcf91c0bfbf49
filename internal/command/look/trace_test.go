package look

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
)

// TestTraceUsageErrors lists command lines that must fail before the kernel is asked, with
// what the message must say.
func TestTraceUsageErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "expected a protocol and a destination"},
		{"10.96.0.10", "has no port: write for example 10.96.0.10:80"},
		{"icmp 10.96.0.10", `"icmp": connections of tcp, udp and sctp can be followed`},
		{"47 10.96.0.10", `"47": connections of tcp, udp and sctp can be followed`},
		{"htp shop/web", "use tcp, udp, sctp"},
		{"sctp shop/web --probe", "--probe: opens connections of tcp and udp"},
		{"shop/web --from 10.0.0.1 --probe", "--from: excludes --from-node and --probe"},
		{"shop/web --timeout 0s", "--timeout: 0s is not a time to wait"},
		{"10.96.0.10:80 --from web", `--from: "web" is neither an address nor a pod: write for example 10.128.0.5 or shop/cart-5d8f7`},
		{"10.96.0.10:80 --from fd00::7", "--from: fd00::7 has no IPv4 address, and the destination is 10.96.0.10"},
		{"10.96.0.10:80 -o xml", `unknown format "xml"`},
	} {
		r := program.Run("", append([]string{"trace"}, strings.Fields(c.args)...)...)
		if r.Code != cli.CodeError || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("trace %s: code %d, %s; want %q", c.args, r.Code, r.Stderr, c.want)
		}
	}
}

// 12.94: the API server says where the pod of --from runs; one of another node is an error
// that names this node.
func TestTraceFromPod(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1/namespaces/shop/pods/cart":
			fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","spec":{"nodeName":"node-2"},"status":{"hostIPs":[{"ip":"198.51.100.99"}],"podIPs":[{"ip":"10.128.1.5"}]}}`)
		case "/api/v1/namespaces/shop/pods/host":
			fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","spec":{"nodeName":"here"},"status":{"hostIPs":[{"ip":"127.0.0.1"}],"podIPs":[{"ip":"127.0.0.1"}]}}`)
		case "/api/v1/namespaces/shop/pods/v6":
			fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","spec":{"nodeName":"here"},"status":{"hostIPs":[{"ip":"127.0.0.1"}],"podIPs":[{"ip":"fd00::5"}]}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods \"gone\" not found","reason":"NotFound","code":404}`)
		}
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: '" + server.URL + "'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for pod, want := range map[string]string{
		"shop/cart": `--from: pod shop/cart runs on node "node-2": trace its connections there`,
		"shop/host": "--from: pod shop/host has the addresses of this node: use --from-node",
		"shop/v6":   "--from: shop/v6 has no IPv4 address, and the destination is 10.96.0.10",
		"shop/gone": "--from: get pod shop/gone: the API server has none of this name",
	} {
		r := program.Run("", "trace", "10.96.0.10:80", "--from", pod, "--kubeconfig", kubeconfig)
		if r.Code != cli.CodeError || !strings.Contains(r.Stderr, want) {
			t.Errorf("from %s: code %d, %s; want %q", pod, r.Code, r.Stderr, want)
		}
	}
}
