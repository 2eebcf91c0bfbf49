package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestClusterErrors lists what can be wrong with the way to an API server.
func TestClusterErrors(t *testing.T) {
	ns := netlab.TestNamespace(t)
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"missing", []string{"--kubeconfig", filepath.Join(dir, "none")}, "no such file or directory"},
		{"broken", []string{"--kubeconfig", write("broken", "a: [")}, "--kubeconfig: "},
		{"empty", []string{"--kubeconfig", write("empty", "{}")}, "names no API server"},
		{"no such context", []string{"--kubeconfig", write("two", twoContexts), "--context", "stagin"}, `two has no context "stagin": did you mean staging?`},
		{"context of nothing", []string{"--context", "staging"}, `--context: "staging" is looked up in a kubeconfig: name the file with --kubeconfig`},
		{"negative burst", []string{"--master", "https://127.0.0.1:6443", "--kube-api-burst", "-1"}, "--kube-api-burst: -1 is negative"},
		{"no period", []string{"--master", "https://127.0.0.1:6443", "--min-sync-period", "soon"}, "--min-sync-period"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := in(t, ns, append([]string{"run"}, c.args...)...)
			if r.code != cli.CodeNo || !strings.Contains(r.stderr, c.want) {
				t.Errorf("code %d, want %q in %q", r.code, c.want, r.stderr)
			}
		})
	}
}

// twoContexts is a kubeconfig whose current context has an API server that does not exist.
const twoContexts = `
apiVersion: v1
kind: Config
current-context: production
contexts:
- {name: production, context: {cluster: production}}
- {name: staging, context: {cluster: staging}}
clusters:
- {name: production, cluster: {server: "http://127.0.0.1:1"}}
- {name: staging, cluster: {server: "http://STAGING"}}
`

// TestNoClusterOutsideOfAPod wants an advice that names both sources.
func TestNoClusterOutsideOfAPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if r := execute("", "run"); r.code != cli.CodeNo || !strings.Contains(r.stderr, "-f") || !strings.Contains(r.stderr, "--kubeconfig") {
		t.Errorf("code %d, %q", r.code, r.stderr)
	}
}
