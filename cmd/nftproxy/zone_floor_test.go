package main

import (
	"strings"
	"testing"
)

const zonedNode = `
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: zone-a}}
status: {addresses: [{type: InternalIP, address: 192.168.7.1}]}
`

// zoned returns a Service with a zone floor and endpoints in two zones.
func zoned(floor string) string {
	return `
apiVersion: v1
kind: Service
metadata: {name: web, annotations: {nftproxy.dev/zone-floor: "` + floor + `"}}
spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, "fd00::1"], ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [10.128.0.2], zone: zone-a}, {addresses: [10.128.0.3], zone: zone-b}, {addresses: [10.128.0.4], zone: zone-b}, {addresses: [10.128.0.5], zone: zone-b}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-2, labels: {kubernetes.io/service-name: web}}
addressType: IPv6
ports: [{port: 80}]
endpoints: [{addresses: ["fd01::2"], zone: zone-a}, {addresses: ["fd01::3"], zone: zone-b}]
`
}

// TestZoneFloorIsExplained: 3.65. Commands say which zones take connections, and why.
func TestZoneFloorIsExplained(t *testing.T) {
	node := writeFile(t, zonedNode)
	low, high := writeFile(t, zoned("25%")), writeFile(t, zoned("50%"))
	on := func(args ...string) string {
		r := execute("", append(args, "-f", node, "--hostname-override", "node-1")...)
		return r.stdout + r.stderr
	}
	for _, c := range []struct {
		what, output string
		want         []string
	}{
		{"describe, enough", on("describe", "web", "-f", low), []string{
			"zone floor        25%", "IPv4: zone zone-a alone: 1 of 4 ready endpoints (25 %), floor 25 %", "IPv6: zone zone-a alone: 1 of 2 ready endpoints (50 %), floor 25 %",
			"in zone zone-b; zone zone-a alone: 1 of 4 ready endpoints (25 %), floor 25 %"}},
		{"describe, below", on("describe", "web", "-f", high), []string{
			"IPv4: 50 % of the connections go to other zones: zone zone-a has 1 of 4 ready endpoints (25 %), below the floor of 50 %", "50.0 %", "16.7 %"}},
		{"describe -o json", on("describe", "web", "-f", high, "-o", "json"), []string{`"zoneFloor": "50%"`, `"elsewhere": 0.5`, `"endpoints": 1,`, `"of": 4,`}},
		{"explain, enough", on("explain", "-f", low, "tcp", "10.96.0.1:80"), []string{
			"zone floor: zone zone-a alone: 1 of 4 ready endpoints (25 %), floor 25 %", "in zone zone-b; zone zone-a alone"}},
		{"explain, below", on("explain", "-f", high, "tcp", "10.96.0.1:80"), []string{"zone floor: 50 % of the connections go to other zones"}},
		{"diff", on("diff", "--from", low, "--from", node, "-f", high), []string{
			"50 % of the connections go to other zones: zone zone-a has 1 of 4 ready endpoints (25 %), below the floor of 50 %", "zone floor 25% → 50%"}},
		{"diff, the other way", on("diff", "--from", high, "--from", node, "-f", low), []string{"zone zone-a alone: 1 of 4 ready endpoints (25 %), floor 25 %"}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.output, want) {
				t.Errorf("%s lacks %q:\n%s", c.what, want, c.output)
			}
		}
	}
	if r := execute("", "validate", "-f", writeFile(t, zoned("0"))); r.code != 0 || !strings.Contains(r.stdout+r.stderr, "[nftproxy.dev/zone-floor]") || !strings.Contains(r.stdout+r.stderr, "use 1% to 100%") {
		t.Errorf("a floor of 0: %d, %s%s", r.code, r.stdout, r.stderr)
	}
}
