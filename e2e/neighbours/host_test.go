package neighbours

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// host is a node with pods, a pod of another node, and a client outside. It runs
// nftproxy with one Service, read from a file.
type host struct {
	*netlab.Lab
	t     *testing.T
	file  string
	proxy *testbed.Process
	flags []string // of nftproxy
}

// newHost makes the host of a test, without nftproxy, and runs the test in
// parallel to others.
func newHost(t *testing.T) *host {
	t.Helper()
	t.Parallel()
	h := &host{Lab: netlab.TestLab(t, 3), t: t, file: filepath.Join(t.TempDir(), "services.yaml"),
		flags: []string{"--cluster-cidr", testbed.ClusterCIDRs, "--healthz-bind-address", "[::]:10256"}}
	if err := h.AddRemotePods(1); err != nil {
		t.Fatal(err)
	}
	h.echo(h.Pods[0])
	h.echo(h.Remote[0])
	h.serve(h.Pods[0], h.Remote[0])
	return h
}

// inEitherOrder runs a test on two new hosts: one where the neighbour starts
// first, and one where nftproxy does.
func inEitherOrder(t *testing.T, f func(h *host, start func(neighbour func()))) {
	t.Helper()
	for _, order := range []string{"neighbour first", "nftproxy first"} {
		t.Run(order, func(t *testing.T) {
			h := newHost(t)
			f(h, func(neighbour func()) {
				if order == "neighbour first" {
					neighbour()
				}
				h.startProxy()
				if order != "neighbour first" {
					rules := h.ownRules()
					neighbour()
					h.kept("start of the neighbour", rules)
				}
			})
		})
	}
}

// echo starts the echo server of a pod.
func (h *host) echo(pod *netlab.Host) {
	h.t.Helper()
	e, err := pod.Echo(testbed.EchoPort)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { e.Close() })
}

// Frontends of the Service.
const nodePort = 30001

func clusterIP(f model.Family) netip.AddrPort {
	return netip.AddrPortFrom(map[model.Family]netip.Addr{
		model.IPv4: netip.MustParseAddr("10.96.0.10"), model.IPv6: netip.MustParseAddr("fd00:10:96::10")}[f], testbed.ServicePort)
}

func (h *host) nodePort(f model.Family) netip.AddrPort {
	return netip.AddrPortFrom(h.Node.Address(f), nodePort)
}

// serve writes the file with the Service and its endpoints.
func (h *host) serve(endpoints ...*netlab.Host) {
	h.t.Helper()
	var content bytes.Buffer
	if err := manifest.Execute(&content, map[string]any{"Node": h.Node, "Families": model.Families, "Endpoints": endpoints}); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.file, content.Bytes(), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

var manifest = template.Must(template.New("manifest").Parse(`
apiVersion: v1
kind: Node
metadata: {name: node}
status:
  addresses: [{type: InternalIP, address: "{{.Node.IPv4}}"}, {type: InternalIP, address: "{{.Node.IPv6}}"}]
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: ["10.96.0.0/16", "fd00:10:96::/112"]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  clusterIPs: ["10.96.0.10", "fd00:10:96::10"]
  ports:
  - {name: tcp, protocol: TCP, port: 80, nodePort: 30001}
  - {name: udp, protocol: UDP, port: 80, nodePort: 30001}
{{- range $family := .Families}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: "web-v{{printf "%d" $family}}", namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: {{$family}}
ports: [{name: tcp, protocol: TCP, port: 8080}, {name: udp, protocol: UDP, port: 8080}]
endpoints:
{{- range $.Endpoints}}
- {addresses: ["{{.Address $family}}"], nodeName: {{.NodeName}}}
{{- end}}
{{- end}}
`))

// startProxy starts nftproxy and waits for its rules.
func (h *host) startProxy() {
	h.t.Helper()
	h.proxy = testbed.Start(h.t, h.Node, testbed.NFTProxy, append([]string{"run", "-f", h.file, "--hostname-override", testbed.NodeName,
		"--conntrack-max-per-core", "0"}, h.flags...)...)
	netlab.Eventually(h.t, patience, func() error {
		_, err := h.try("nft", "list", "chain", "ip6", "nftproxy", "prerouting")
		return err
	})
}

// ownRules returns nftproxy's tables with their handles, which differ if
// something was removed and added again.
func (h *host) ownRules() string {
	h.t.Helper()
	return h.run("nft", "-a", "-s", "list", "table", "ip", "nftproxy") + h.run("nft", "-a", "-s", "list", "table", "ip6", "nftproxy")
}

// kept checks that nftproxy's tables are as they were.
func (h *host) kept(when, rules string) {
	h.t.Helper()
	if now := h.ownRules(); now != rules {
		h.t.Errorf("%s: nftproxy's tables changed (-before +after):\n%s", when, cmp.Diff(rules, now))
	}
}

// try runs a command on the node and returns what it prints.
func (h *host) try(name string, args ...string) (string, error) {
	return output(h.Node, exec.Command(name, args...))
}

// output runs a command on a host and returns what it prints.
func output(on *netlab.Host, cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := on.Run(cmd); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// run runs a command on the node, which must succeed.
func (h *host) run(name string, args ...string) string {
	h.t.Helper()
	out, err := h.try(name, args...)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// load loads a script of nft on the node.
func (h *host) load(script string) {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "script.nft")
	if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
		h.t.Fatal(err)
	}
	h.run("nft", "-f", file)
}

// sysctl sets a sysctl of the node.
func (h *host) sysctl(name, value string) {
	h.t.Helper()
	if err := h.Node.Do(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) }); err != nil {
		h.t.Fatal(err)
	}
}
