package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/testkit/apilab"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// vip is a Service of a file, with the endpoints of another one of the cluster.
const vip = `
{kind: Service, apiVersion: v1, metadata: {namespace: kube-system, name: vip, annotations: {nftproxy.dev/endpoints-from: default/web}}, spec: {clusterIP: 192.0.2.100, ports: [{port: 6443}]}}
---
{kind: EndpointSlice, apiVersion: discovery.k8s.io/v1, metadata: {namespace: kube-system, name: vip-1, labels: {kubernetes.io/service-name: vip}}, addressType: IPv4, ports: [{port: 6443}], endpoints: [{addresses: [10.0.0.1]}]}
`

// TestJoined: 14.20 to 14.23. A daemon of files and an API server starts before there
// is a kubeconfig, and serves the files; then both. After a restart nothing is removed
// while the API server cannot be reached.
func TestJoined(t *testing.T) {
	ns := netlab.TestNamespace(t)
	api := apilab.Start(t, ns, strings.ReplaceAll(nodeAndService, "metadata: {name: web", "metadata: {namespace: default, name: web"))
	file, kubeconfig := writeFile(t, vip), filepath.Join(t.TempDir(), "kubeconfig")
	config := func(url string) {
		t.Helper()
		text := "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: '" + url + "'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"
		if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func() *process {
		return start(t, ns, "nftproxy", "run", "-f", file, "--kubeconfig", kubeconfig, noLimit, "--hostname-override", "node-1")
	}
	rules := func() string { return in(t, ns, "describe", "vip").stdout + in(t, ns, "describe", "web").stdout }
	has := func(what string, texts ...string) {
		t.Helper()
		eventually(t, what, func() bool {
			got := rules()
			for _, text := range texts {
				if !strings.Contains(got, text) {
					return false
				}
			}
			return true
		})
	}

	ns.NFT(t, "add", "table", "ip", "kube-proxy")
	ns.NFT(t, "add", "chain", "ip", "kube-proxy", "services")
	p := run()
	has("(14.20) the files are served without a kubeconfig", "10.0.0.1:6443")
	if got := rules(); strings.Contains(got, "10.128.1.1") {
		t.Errorf("without an API server: %s", got)
	}
	const takeOver = "took over from kube-proxy"
	if strings.Contains(p.log.String(), takeOver) {
		t.Error("(12.61) the rules of kube-proxy are gone before the cluster is served")
	}
	config(api.URL)
	has("(14.23) the cluster is served, and completes the files", "10.96.0.10", "10.0.0.1:6443", "10.128.1.1:6443")
	eventually(t, "the status names both", func() bool {
		_, got := get(t, ns, "http://127.0.0.1:10249/status")
		return strings.Contains(got, "files "+file+" and API server")
	})
	eventually(t, "(12.61) the rules of kube-proxy are gone", func() bool { return strings.Contains(p.log.String(), takeOver) })
	p.kill()

	config("http://127.0.0.1:1")
	p = run()
	eventually(t, "the API server is asked", func() bool { return strings.Contains(p.log.String(), "objects cannot be read") })
	d := start(t, ns, "nftproxy", "diff", "-f", file, "--master", api.URL, "--hostname-override", "node-1")
	if d.ends(t, 0); d.output.String() != "No changes.\n" {
		t.Errorf("(14.20) after a restart without the API server: %s", &d.output)
	}
	p.says(t, "the rules of an earlier run stay until the files and the API server have been read")
}

// apiBalance serves an API server with most optional parts of the rules.
const apiBalance = `
kind: Balance
name: apiserver
namespace: kube-system
listen: ["192.0.2.100:6443", "192.0.2.100:7000-7049"]
backends: [10.0.0.1, 10.0.0.2]
affinity: 10m
clients: [192.0.2.0/24, 198.51.100.0/26]
limits: {connections: 1000, ratePerClient: 10/second}
`

// TestJoinedMistakeAtRestart: 14.20, 14.22, 14.25. The file has a mistake when the daemon is
// started again. Its Services stay in the kernel as they are, changes of the cluster take
// effect, and no object of the cluster takes an address of the file.
func TestJoinedMistakeAtRestart(t *testing.T) {
	ns := netlab.TestNamespace(t)
	inDefault := strings.NewReplacer("metadata: {name: ", "metadata: {namespace: default, name: ")
	api := apilab.Start(t, ns, node+"\n---\n"+inDefault.Replace(service))
	file := writeFile(t, apiBalance)
	run := func(flags ...string) *process {
		return start(t, ns, append([]string{"nftproxy", "run", "-f", file, "--master", api.URL, noLimit, "--hostname-override", "node-1"}, flags...)...)
	}
	explains := func(what, from, to, text string) {
		t.Helper()
		eventually(t, what, func() bool { return strings.Contains(in(t, ns, "explain", "--from", from, "tcp", to).stdout, text) })
	}
	// ofFile returns all elements of the kernel about the address of the file.
	ofFile := func() (out []string) {
		for line := range strings.Lines(ns.NFT(t, "-s", "list", "ruleset")) {
			if strings.Contains(line, "192.0.2.100 ") {
				out = append(out, strings.TrimRight(strings.TrimPrefix(strings.TrimSpace(line), "elements = { "), ", }"))
			}
		}
		slices.Sort(out)
		return out
	}
	p := run()
	explains("the cluster is served", "203.0.113.7", "10.96.0.10:80", "10.128.1.2:8080")
	before := ofFile()
	p.kill()
	if len(before) < 15 {
		t.Fatalf("the kernel has of the file:\n%s", strings.Join(before, "\n"))
	}

	if err := os.WriteFile(file, []byte(apiBalance+"  x: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	api.Set(t, strings.NewReplacer("name: web", "name: more", "10.96.0.10", "10.96.0.11").Replace(inDefault.Replace(service)))
	run("--affinity-size=1000", "--load-balancer-cidrs=198.51.100.0/24") // other tables
	explains("a Service of the cluster that is new", "203.0.113.7", "10.96.0.11:80", "10.128.1.2:8080")
	eventually(t, "/healthz names the file", func() bool {
		code, body := get(t, ns, "http://127.0.0.1:10256/healthz")
		return code == 200 && strings.Contains(body, `"usable":false`)
	})
	api.Set(t, strings.ReplaceAll(inDefault.Replace(service), "- {addresses: [10.128.1.1], nodeName: node-2}\n", ""))
	eventually(t, "an endpoint leaves", func() bool {
		return !strings.Contains(in(t, ns, "explain", "--from", "203.0.113.7", "tcp", "10.96.0.10:80").stdout, "10.128.1.1")
	})
	api.Set(t, strings.NewReplacer("name: web", "name: thief", "clusterIP: 10.96.0.10", "clusterIP: 10.96.0.12\n  externalIPs: [192.0.2.100]", "port: 80}", "port: 6443}").Replace(inDefault.Replace(service)))
	explains("a Service that asks for an address of the file", "203.0.113.7", "10.96.0.12:6443", "10.128.1.2:8080")
	if diff := cmp.Diff(before, ofFile()); diff != "" {
		t.Errorf("the Services of the file are not as before:\n%s", diff)
	}
	api.Remove("Service", "more")
	eventually(t, "a Service of the cluster is gone", func() bool { return !rendered(t, ns, "10.96.0.11:80") })
	if _, got := get(t, ns, "http://127.0.0.1:10249/status"); !strings.Contains(got, "not read since the start (rules of an earlier run for their Services stay)") ||
		!strings.Contains(got, `"reason": "Kept"`) || !regexp.MustCompile(`"kind": "Balance",\s+"namespace": "kube-system",\s+"name": "apiserver"`).MatchString(got) {
		t.Errorf("status: %s", got)
	}

	if err := os.WriteFile(file, []byte(strings.ReplaceAll(apiBalance, "10.0.0.2", "10.0.0.3")), 0o600); err != nil {
		t.Fatal(err)
	}
	explains("the file is right", "192.0.2.7", "192.0.2.100:6443", "10.0.0.3:6443")
	eventually(t, "what is left is what the sources say", func() bool {
		d := start(t, ns, "nftproxy", "diff", "-f", file, "--master", api.URL, "--hostname-override", "node-1")
		d.ends(t, 0)
		return d.output.String() == "No changes.\n"
	})
}

// TestJoinedInit: --init-only does not need the API server if there are files.
func TestJoinedInit(t *testing.T) {
	ns := netlab.TestNamespace(t)
	if r := in(t, ns, "run", "-f", writeFile(t, vip), "--kubeconfig", "/nowhere", noLimit, "--init-only"); r.code != 0 {
		t.Errorf("%+v", r)
	}
}
