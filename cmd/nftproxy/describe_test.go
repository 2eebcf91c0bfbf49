package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// shop is a Service of each fate, with most of what a Service can have.
const shop = "testdata/shop.yaml"

// TestDescribeFile describes Services of a file. The results are golden files, of which
// docs/inspect.md shows some.
func TestDescribeFile(t *testing.T) {
	for question, name := range map[string]string{"shop/web": "web", "cart": "cart"} {
		r := execute("", "describe", question, "-f", shop, "--hostname-override", "node-1")
		if r.code != 0 {
			t.Fatal(r.stderr)
		}
		golden(t, filepath.Join("testdata", "describe-"+name+".txt"), r.stdout)
	}
	r := execute("", "describe", "shop/web", "-f", shop, "--hostname-override", "node-1", "-o", "json")
	var s api.Description
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil || r.code != 0 {
		t.Fatal(err, r.stderr)
	}
	shares := map[string]float64{}
	for _, e := range s.Ports[1].Endpoints {
		shares[e.Address] = e.Inside.Part
	}
	if s.From != api.FromInput || s.AffinitySeconds != 600 || shares["10.128.0.2:8080"] != 0.5 || shares["10.128.1.4:8080"] != 0.25 || s.Ports[1].Endpoints[3].Outside.LeftOut == "" {
		t.Errorf("JSON: %+v", s)
	}
}

// golden compares a text with a file, or writes it with UPDATE=1.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (UPDATE=1 rewrites it):\n%s", file, got)
	}
}

func TestDescribeErrors(t *testing.T) {
	for args, want := range map[string]string{
		"":             "expected the name of a Service or Balance",
		"shop/web a":   "expected the name of a Service or Balance",
		"wbe":          `no Service is named "wbe": did you mean shop/web?`,
		"shp/web":      `no Service is named "shp/web": did you mean shop/web?`,
		"db":           `"db" is the name of several Services: choose other/db, shop/db`,
		"web -o xml":   "unknown format",
		"nothing-like": `no Service is named "nothing-like"` + "\n",
	} {
		r := execute("", append([]string{"describe", "-f", shop}, strings.Fields(args)...)...)
		if r.code != cli.CodeError || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %d %s, want %q", args, r.code, r.stderr, want)
		}
	}
}

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
