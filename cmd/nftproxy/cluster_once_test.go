package main

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/apilab"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// node is a Node for the service of the tests.
const node = commandline.Node

const nodeAndService = node + "\n---\n" + service

// TestOnceAgainstCluster lets the commands read an API server once: their rules
// are those for a file with the same objects.
func TestOnceAgainstCluster(t *testing.T) {
	ns := netlab.TestNamespace(t)
	api := apilab.Start(t, ns, strings.ReplaceAll(nodeAndService, "metadata: {name: web", "metadata: {namespace: default, name: web"))
	path := writeFile(t, nodeAndService)
	conf := writeFile(t, "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nclusterCIDR: 10.128.0.0/9\n")
	want := execute("", "render", "-f", path, "--hostname-override", "node-1", "--cluster-cidr", "10.128.0.0/9")
	if want.code != 0 {
		t.Fatal(want.stderr)
	}
	once := func(code int, args ...string) *process {
		t.Helper()
		args = append([]string{"nftproxy"}, args...)
		p := start(t, ns, append(args, "--master", api.URL, "--hostname-override", "node-1", "--config", conf)...)
		p.ends(t, code)
		return p
	}
	if got := once(0, "render"); got.output.String() != want.stdout {
		t.Errorf("render: got\n%s\nwant\n%s", &got.output, want.stdout)
	}
	if got := once(cli.CodeNo, "diff"); !strings.Contains(got.output.String(), "10.96.0.10 . tcp . 80") {
		t.Errorf("diff: %s", &got.output)
	}
	if got := once(0, "apply"); !strings.Contains(got.output.String(), "to add, 0 to change, 0 to delete.") {
		t.Errorf("apply: %s", &got.output)
	}
	if got := once(0, "diff"); got.output.String() != "No changes.\n" {
		t.Errorf("diff after apply: %s", &got.output)
	}
	if got := once(0, "explain", "--from", "203.0.113.7", "tcp", "10.96.0.10:80"); !strings.Contains(got.output.String(), "default/web:http (ClusterIP)") {
		t.Errorf("explain: %s", &got.output)
	}
	if got := once(0, "explain", "tcp", "web:http", "--brief"); !strings.Contains(got.output.String(), "default/web:http (ClusterIP)") {
		t.Errorf("explain by name: %s", &got.output)
	}
	if got := once(0, "describe", "web"); !strings.Contains(got.output.String(), "Service default/web on node node-1 (zone zone-a): 2 endpoints take connections") {
		t.Errorf("describe: %s", &got.output)
	}
	in(t, ns, "cleanup")
}

// TestContext: commands read the API server of the context that is named (12.88).
func TestContext(t *testing.T) {
	ns := netlab.TestNamespace(t)
	api := apilab.Start(t, ns, strings.ReplaceAll(nodeAndService, "metadata: {name: web", "metadata: {namespace: default, name: web"))
	kubeconfig := writeFile(t, strings.ReplaceAll(twoContexts, "http://STAGING", api.URL))
	for _, c := range []struct {
		command string
		code    int
		want    string
	}{
		{"render", 0, "10.96.0.10 . tcp . 80"},
		{"diff", cli.CodeNo, "10.96.0.10 . tcp . 80"},
		{"diff -f " + writeFile(t, vip), cli.CodeNo, "10.96.0.10 . tcp . 80"},
		{"explain --brief tcp web:http", 0, "default/web:http (ClusterIP)"},
		{"describe web", 0, "2 endpoints take connections"},
		{"apply", 0, "10.96.0.10 . tcp . 80"},
	} {
		args := append([]string{"nftproxy"}, strings.Fields(c.command)...)
		p := start(t, ns, append(args, "--kubeconfig", kubeconfig, "--context", "staging", "--hostname-override", "node-1")...)
		p.ends(t, c.code)
		if !strings.Contains(p.output.String(), c.want) {
			t.Errorf("%s: %s", c.command, &p.output)
		}
	}
}

// TestOnceWithoutCluster: a command that reads an API server once says in one message why it
// cannot, and does not speak of objects that stay in use (12.87).
func TestOnceWithoutCluster(t *testing.T) {
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := closed.Addr().String()
	closed.Close()
	begun := time.Now()
	r := execute("", "render", "--master", "http://"+address, "--hostname-override", "node-1")
	if r.code != cli.CodeError || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "read cluster: no objects from the API server in 10s: list Services: ") ||
		!strings.Contains(r.stderr, "connection refused") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if took := time.Since(begun); took < 5*time.Second {
		t.Errorf("it waited %v only: an API server that restarts takes longer", took)
	}
}
