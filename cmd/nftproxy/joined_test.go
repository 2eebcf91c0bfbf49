package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/netlab"
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
	api := startAPI(t, ns, strings.ReplaceAll(nodeAndService, "metadata: {name: web", "metadata: {namespace: default, name: web"))
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
	config(api.url)
	has("(14.23) the cluster is served, and completes the files", "10.96.0.10", "10.0.0.1:6443", "10.128.1.1:6443")
	if _, got := get(t, ns, "http://127.0.0.1:10249/status"); !strings.Contains(got, "files "+file+" and API server") {
		t.Errorf("status: %s", got)
	}
	eventually(t, "(12.61) the rules of kube-proxy are gone", func() bool { return strings.Contains(p.log.String(), takeOver) })
	p.kill()

	config("http://127.0.0.1:1")
	p = run()
	eventually(t, "the API server is asked", func() bool { return strings.Contains(p.log.String(), "objects cannot be read") })
	d := start(t, ns, "nftproxy", "diff", "-f", file, "--master", api.url, "--hostname-override", "node-1")
	if d.ends(t, 0); d.output.String() != "No changes.\n" {
		t.Errorf("(14.20) after a restart without the API server: %s", &d.output)
	}
	if !strings.Contains(p.log.String(), "the rules of an earlier run stay until the files and the API server have been read") {
		t.Errorf("the log does not report the wait: %s", &p.log)
	}
}

// TestJoinedInit: --init-only does not need the API server if there are files.
func TestJoinedInit(t *testing.T) {
	ns := netlab.TestNamespace(t)
	if r := in(t, ns, "run", "-f", writeFile(t, vip), "--kubeconfig", "/nowhere", noLimit, "--init-only"); r.code != 0 {
		t.Errorf("%+v", r)
	}
}
