package main

import (
	"os"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestExplainKernel answers from what is applied in a namespace. It needs root.
func TestExplainKernel(t *testing.T) {
	l := netlab.TestLab(t, 0)
	node := l.Node.Namespace
	if r := in(t, node, "explain", "tcp", "10.96.0.10:80"); r.code != 0 || !strings.Contains(r.stdout, "not served by nftproxy: there is no table for IPv4") {
		t.Errorf("empty kernel: code %d, %s%s", r.code, r.stdout, r.stderr)
	} else if !strings.Contains(r.stdout, "the kernel has no tables of nftproxy") {
		t.Errorf("empty kernel: no remedy in\n%s", r.stdout)
	}
	for _, command := range []string{"explain", "trace"} {
		if r := in(t, node, command, "web"); r.code != cli.CodeError || !strings.Contains(r.stderr, "the kernel has no tables of nftproxy") {
			t.Errorf("%s by name, empty kernel: code %d, %s%s", command, r.code, r.stdout, r.stderr)
		}
	}
	if r := in(t, node, "apply", "-f", writeFile(t, service), "--cluster-cidr", "10.128.0.0/9"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	// The node dials from its address on the way to the client, its gateway.
	r := in(t, node, "explain", "tcp", "10.96.0.10:80")
	for _, want := range []string{"from the node (" + l.Node.IPv4.String() + "): forwarded", "default/web:http (ClusterIP)", "masqueraded by: ", "\n  output\n"} {
		if r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("from the node: code %d, no %q in\n%s%s", r.code, want, r.stdout, r.stderr)
		}
	}
	if r := in(t, node, "explain", "--from", l.Node.IPv4.String(), "tcp", "10.96.0.10:81"); !strings.Contains(r.stdout, "from the node") || !strings.Contains(r.stdout, "rejected") {
		t.Errorf("from an address of the node: %s%s", r.stdout, r.stderr)
	}
	if r := in(t, node, "explain", "--from", "10.128.9.9", "tcp", "10.96.0.10:80"); !strings.Contains(r.stdout, "\n  prerouting\n") || !strings.Contains(r.stdout, "source     kept") {
		t.Errorf("from a pod: %s%s", r.stdout, r.stderr)
	}
}

// TestExplainUnknownSource: where the address that the node dials from is not
// known, the answer says so and has no address in its place.
func TestExplainUnknownSource(t *testing.T) {
	path := writeFile(t, `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.10
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
  externalTrafficPolicy: Local
  loadBalancerSourceRanges: [203.0.113.0/24]
  ports: [{name: http, port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 198.51.100.7}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.128.1.1]}, {addresses: [10.128.1.2]}]
`)
	ns := netlab.TestNamespace(t) // without a route
	if r := in(t, ns, "apply", "-f", path, "--cluster-cidr", "10.128.0.0/9"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	for _, frontend := range []string{"10.96.0.10:80", "198.51.100.7:80"} {
		for _, args := range [][]string{{"explain"}, {"explain", "-f", path}} {
			for _, format := range []string{"text", "json"} {
				r := in(t, ns, append(args, "-o", format, "tcp", frontend)...)
				if r.code != 0 || strings.Contains(r.stdout, "invalid") {
					t.Errorf("%s %s: code %d, %s%s", args, frontend, r.code, r.stdout, r.stderr)
				}
				if frontend == "10.96.0.10:80" && !strings.Contains(r.stdout, "remembers 10.96.0.10 . tcp . 80 . the client's address for 10m0s") {
					t.Errorf("%s %s: what is remembered is missing in %s", args, frontend, r.stdout)
				}
			}
		}
	}
}

// TestExplainRunning asks the running daemon for what the kernel's rules do not have, and
// reports what would stop the connection on this machine.
func TestExplainRunning(t *testing.T) {
	ns := netlab.TestLab(t, 0).Node.Namespace
	p := startCommand(t, ns, asNftproxy(t, "run", "-f", shop, "--hostname-override", "node-1", "--metrics-bind-address", "127.0.0.1:7011", "--healthz-bind-address", ""))
	has := func(args string, wants ...string) func() bool {
		return func() bool {
			r := ask(t, ns, append([]string{"explain"}, strings.Fields(args)...)...)
			for _, want := range wants {
				if r.code != 0 || !strings.Contains(r.stdout, want) {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "who is left out", has("web", "tcp 10.96.0.10:80 from the node", "left out   10.128.0.6:8080  its weight is 0", "10.128.1.5:8080  terminating, and others are ready"))
	eventually(t, "who is left out for clients outside", has("tcp 198.51.100.7:80 --from 203.0.113.9", "10.128.1.4:8080  policy Local, and it is on node node-2", "conflict   shop/cart:http also claims this frontend, and lost"))
	eventually(t, "a slice without the port", has("web:admin", "rejected", `left out   10.128.0.2  EndpointSlice web-1 has no port "admin" (TCP)`))
	if err := ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0) }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "forwarding", has("web --from 203.0.113.9", "note       net.ipv4.ip_forward is 0"))
	p.kill()
	eventually(t, "no daemon", has("web:admin", "which endpoints are left out is not known: no daemon answers"))
}
