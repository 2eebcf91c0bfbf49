package main

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli/common"
)

// fastServices are a Service of TCP and UDP with a NodePort, and one whose connections continue.
const fastServices = `
kind: Service
apiVersion: v1
metadata: {name: dns}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  ports:
  - {name: tcp, protocol: TCP, port: 53, nodePort: 30053}
  - {name: udp, protocol: UDP, port: 53, nodePort: 30053}
---
kind: Service
apiVersion: v1
metadata: {name: kept, annotations: {nftproxy.dev/on-failure: keep}}
spec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {name: dns-1, labels: {kubernetes.io/service-name: dns}}
addressType: IPv4
ports: [{name: tcp, protocol: TCP, port: 53}, {name: udp, protocol: UDP, port: 53}]
endpoints: [{addresses: [10.128.1.2]}]
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {name: kept-1, labels: {kubernetes.io/service-name: kept}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.128.1.3]}]
`

// TestExplainFastPath: 9.29, 9.31. A dry run knows the flags of run that keep connections with the rules.
func TestExplainFastPath(t *testing.T) {
	const closed, observed, several = "connections to endpoints that are gone are closed", "the connections of the Service are observed", "NodePorts on several addresses have none"
	for _, c := range []struct {
		args, want string // of the note; empty: none
	}{
		{"tcp 10.96.0.10:53", ""},
		{"tcp 10.96.0.10:53 --conntrack-tcp-cleanup", ""},
		{"tcp 10.96.0.10:53 --fast-path=all", common.TakesFastPath},
		{"tcp 10.96.0.10:53 --fast-path=services", "the Service does not ask for it"},
		{"tcp 10.96.0.10:53 --fast-path=all --conntrack-tcp-cleanup", closed},
		{"udp 10.96.0.10:53 --fast-path=all --conntrack-tcp-cleanup", common.TakesFastPath},
		{"tcp 10.96.0.11:80 --fast-path=all --conntrack-tcp-cleanup", common.TakesFastPath},
		{"udp 10.96.0.10:53 --fast-path=all --observe=connections", observed},
		{"udp 192.168.7.1:30053 --fast-path=all --bind-address 192.168.7.1 --nodeport-addresses 192.168.0.0/16", several},
	} {
		r := execute(fastServices, append([]string{"explain", "-f", "-"}, strings.Fields(c.args)...)...)
		if r.code != 0 {
			t.Errorf("explain %s: code %d, %s", c.args, r.code, r.stderr)
			continue
		}
		if !strings.Contains(r.stdout, c.want) || c.want == "" && strings.Contains(r.stdout, "fast path") {
			t.Errorf("explain %s: want a note with %q:\n%s", c.args, c.want, r.stdout)
		}
	}
}
