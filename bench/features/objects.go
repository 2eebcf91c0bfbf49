package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	servicePort   = 80
	serverPort    = 8080
	firstNodePort = 20000
	endpoints     = 4
	// share is how many other Services there are for each that has what a row says of
	// the others.
	share = 10
)

// objects returns a node, Services and their EndpointSlices as YAML. The middle Service is
// the one that is measured, and has the servers as its endpoints.
func (f *feature) objects(family model.Family, services int, node netip.Addr, servers []netip.Addr) string {
	var text strings.Builder
	fmt.Fprintf(&text, "{kind: Node, apiVersion: v1, metadata: {name: node}, status: {addresses: [{type: InternalIP, address: '%s'}]}}\n", node)
	for i := range services {
		s, to := settings{}, unusedEndpoints(family, i)
		switch {
		case i == measured(services):
			s, to = f.own, servers
		case i%share == 0:
			s = f.others
		}
		writeService(&text, family, i, s, f.kind(), to)
	}
	return text.String()
}

// measured is the number of the Service that is measured.
func measured(services int) int { return services/2 | 1 } // not a multiple of share

// kind is the type of all Services.
func (f *feature) kind() string {
	switch f.dial {
	case clusterIP:
		return "ClusterIP"
	case loadBalancer:
		return "LoadBalancer"
	}
	return "NodePort"
}

func writeService(text *strings.Builder, family model.Family, i int, s settings, kind string, to []netip.Addr) {
	port, status := fmt.Sprintf("{port: %d}", servicePort), ""
	switch kind {
	case "NodePort":
		port = fmt.Sprintf("{port: %d, nodePort: %d}", servicePort, firstNodePort+i)
	case "LoadBalancer":
		status = fmt.Sprintf(", status: {loadBalancer: {ingress: [{ip: '%s'}]}}", serviceAddress(family, loadBalancer, i))
	}
	if s.spec != "" {
		s.spec = ", " + s.spec
	}
	fmt.Fprintf(text, `---
{kind: Service, apiVersion: v1, metadata: {name: service-%d, annotations: {%s}}, spec: {type: %s, clusterIP: '%s', ipFamilies: [%s], ports: [%s]%s}%s}
---
{kind: EndpointSlice, apiVersion: discovery.k8s.io/v1, metadata: {name: service-%[1]d-1, labels: {kubernetes.io/service-name: service-%[1]d}},
 addressType: %[5]s, ports: [{port: %[9]d}], endpoints: [%[10]s]}
`, i, s.annotations, kind, serviceAddress(family, clusterIP, i), family, port, s.spec, status, serverPort, flowEndpoints(to))
}

func flowEndpoints(to []netip.Addr) string {
	var all []string
	for _, a := range to {
		all = append(all, fmt.Sprintf("{addresses: ['%s']}", a))
	}
	return strings.Join(all, ", ")
}

// unusedEndpoints returns the endpoints of a Service that no client dials.
func unusedEndpoints(family model.Family, i int) []netip.Addr {
	var all []netip.Addr
	for j := range endpoints {
		all = append(all, address(family, "10.200.0.0", "fd00:10:200::", i*endpoints+j))
	}
	return all
}

// serviceAddress returns an address of Service i.
func serviceAddress(family model.Family, d dial, i int) netip.Addr {
	if d == loadBalancer {
		return address(family, "198.18.0.0", "2001:db8:18::", i)
	}
	return address(family, "10.96.0.0", "fd00:10:96::", i)
}

// address returns address n of a network.
func address(family model.Family, v4, v6 string, n int) netip.Addr {
	n++ // the first one is not for use
	if family == model.IPv6 {
		b := netip.MustParseAddr(v6).As16()
		b[13], b[14], b[15] = byte(n>>16), byte(n>>8), byte(n)
		return netip.AddrFrom16(b)
	}
	b := netip.MustParseAddr(v4).As4()
	b[1], b[2], b[3] = b[1]+byte(n>>16), byte(n>>8), byte(n)
	return netip.AddrFrom4(b)
}

var loopback = map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("127.0.0.1"), model.IPv6: netip.IPv6Loopback()}

// target returns what clients of the measured Service dial.
func (f *feature) target(family model.Family, services int, node netip.Addr) netip.AddrPort {
	i := measured(services)
	switch f.dial {
	case nodePort, ownNodePort:
		return netip.AddrPortFrom(node, firstNodePort+uint16(i))
	case localhost:
		return netip.AddrPortFrom(loopback[family], firstNodePort+uint16(i))
	}
	return netip.AddrPortFrom(serviceAddress(family, f.dial, i), cmp.Or(f.port, servicePort))
}
