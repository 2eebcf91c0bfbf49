package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// shop is a Service of each fate, with most of what a Service can have.
const shop = "testdata/shop.yaml"

// TestDescribeRunning asks a daemon, which knows most, then the kernel's tables (11.22).
func TestDescribeRunning(t *testing.T) {
	ns := netlab.TestLab(t, 0).Node.Namespace
	dir := t.TempDir()
	file := filepath.Join(dir, "shop.yaml")
	content, err := os.ReadFile(shop)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(file+"~", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+"~", file); err != nil {
			t.Fatal(err)
		}
	}
	write(string(content))
	p := startCommand(t, ns, asNftproxy(t, "run", "-f", file, "--hostname-override", "node-1", "--service-metrics", "--metrics-bind-address", "127.0.0.1:7009", "--healthz-bind-address", ""))
	has := func(args string, wants ...string) func() bool {
		return func() bool {
			r := ask(t, ns, append([]string{"describe"}, strings.Fields(args)...)...)
			for _, w := range wants {
				if !strings.Contains(r.stdout+r.stderr, w) {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "the daemon's answer", has("web", "on node node-1", "not since this nftproxy started", "0 clients are bound", "CONNECTIONS", "from outside: policy Local, and it is on node node-2"))
	write(strings.ReplaceAll(string(content), "timeoutSeconds: 600", "timeoutSeconds: 300"))
	eventually(t, "the last change", has("shop/web", "ago: affinity 600 s → 300 s"))
	eventually(t, "the daemon's suggestion", has("wbe", `no Service is named "wbe": did you mean shop/web?`))
	p.kill()
	eventually(t, "the kernel's answer", has("web", "this is from the kernel's tables", "10.128.0.2:8080  50.0 %       66.7 %"))
	eventually(t, "the suggestion for the kernel", has("wbe", "did you mean shop/web?"))
	if r := ask(t, netlab.TestLab(t, 0).Node.Namespace, "describe", "web"); r.code != cli.CodeError || !strings.Contains(r.stderr, "the kernel has no tables of nftproxy") {
		t.Errorf("no tables: %d %s", r.code, r.stderr)
	}
}
