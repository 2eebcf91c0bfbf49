package test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"text/template"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
)

const (
	nodeName    = "node" // that the program runs on
	servicePort = 80
	echoPort    = 8080
)

// service is a dual stack Service of type LoadBalancer with one port per
// protocol, and its EndpointSlices. N is the number that its addresses and its
// NodePort end with.
type service struct {
	Name string
	N    int
	Pods []*netlab.Host
}

var manifest = template.Must(template.New("manifest").Parse(`
apiVersion: v1
kind: Node
metadata:
  name: node
status:
  addresses:
  - {type: InternalIP, address: "{{.Node.IPv4}}"}
  - {type: InternalIP, address: "{{.Node.IPv6}}"}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata:
  name: kubernetes
spec:
  cidrs: ["10.96.0.0/16", "fd00:10:96::/112"]
{{- range .Services}}
---
apiVersion: v1
kind: Service
metadata:
  name: {{.Name}}
  namespace: default
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.{{.N}}
  clusterIPs: ["10.96.0.{{.N}}", "fd00:10:96::{{.N}}"]
  ipFamilies: [IPv4, IPv6]
  externalIPs: ["198.51.100.{{.N}}", "2001:db8:1::{{.N}}"]
  ports:
  - {name: tcp, protocol: TCP, port: 80, nodePort: {{.NodePort}}}
  - {name: udp, protocol: UDP, port: 80, nodePort: {{.NodePort}}}
  - {name: sctp, protocol: SCTP, port: 80, nodePort: {{.NodePort}}}
status:
  loadBalancer:
    ingress:
    - ip: 203.0.113.{{.N}}
    - ip: "2001:db8:2::{{.N}}"
{{- $service := .}}
{{- range $family := $.Families}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {{$service.Name}}-v{{printf "%d" $family}}
  namespace: default
  labels: {kubernetes.io/service-name: {{$service.Name}}}
addressType: {{$family}}
ports:
- {name: tcp, protocol: TCP, port: 8080}
- {name: udp, protocol: UDP, port: 8080}
- {name: sctp, protocol: SCTP, port: 8080}
endpoints:
{{- range $service.Pods}}
- addresses: ["{{.Address $family}}"]
  nodeName: node
  conditions: {ready: true}
{{- else}} []
{{- end}}
{{- end}}
{{- end}}
`))

// render returns the input of the program for some services.
func render(t *testing.T, node *netlab.Host, services []service) string {
	t.Helper()
	var out strings.Builder
	err := manifest.Execute(&out, map[string]any{
		"Node": node, "Services": services, "Families": model.Families})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// NodePort returns the port of the service on the addresses of the node.
func (s service) NodePort() uint16 { return 30000 + uint16(s.N) }

func (s service) clusterIP(f model.Family) netip.AddrPort {
	return s.frontend(f, "10.96.0.%d", "fd00:10:96::%d")
}

// frontends returns everything that can be dialled, by kind.
func (s service) frontends(node *netlab.Host, f model.Family) map[string]netip.AddrPort {
	return map[string]netip.AddrPort{
		"ClusterIP":        s.clusterIP(f),
		"external IP":      s.frontend(f, "198.51.100.%d", "2001:db8:1::%d"),
		"load balancer IP": s.frontend(f, "203.0.113.%d", "2001:db8:2::%d"),
		"NodePort":         netip.AddrPortFrom(node.Address(f), s.NodePort()),
	}
}

func (s service) frontend(f model.Family, v4, v6 string) netip.AddrPort {
	format := v4
	if f == model.IPv6 {
		format = v6
	}
	return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(format, s.N)), servicePort)
}
