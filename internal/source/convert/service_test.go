package convert

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

const (
	named    = "Name default/web\n"
	simple   = named + "ClusterIPs [10.96.0.1]\n"
	notAlone = ": is not served: without clusterIP, only the addresses of status.loadBalancer.ingress are; give the Service a clusterIP, or remove this"
	notAnIP  = " is not an IP address: write it like 10.96.0.1 or fd00::1"
)

func TestConvertService(t *testing.T) {
	for name, cases := range map[string][]conversion{
		"which":     whichServices,
		"addresses": serviceAddresses,
		"ports":     servicePorts,
		"policies":  servicePolicies,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, `{metadata: {name: web, namespace: default}, spec: {clusterIP: 10.96.0.1}}`, cases,
				func(s *corev1.Service) (any, []*manifest.FieldError) { return anyOf(Service(s, "")) })
		})
	}
}

var whichServices = []conversion{
	{"1.2 another proxy's", `metadata: {labels: {service.kubernetes.io/service-proxy-name: other}}`, "", nil},
	{"1.2 with an empty value", `metadata: {labels: {service.kubernetes.io/service-proxy-name: ""}}`, "", nil},
	{"1.1 another label", `metadata: {labels: {proxy-name: other}}`, simple, nil},
	{"1.5 nothing else selects", `{metadata: {deletionTimestamp: "2024-05-01T12:00:00Z"}, spec: {loadBalancerClass: x}}`, simple, nil},
	{"1.6 headless", `spec: {clusterIP: None, ports: [{port: 80, protocol: SCTP}], healthCheckNodePort: 1}`, "", nil},
	{"1.6 without ClusterIP", `spec: {clusterIP: ""}`, "",
		[]string{`warning: spec.clusterIP: missing: nothing of this Service is served; give it an address, or "None" if it is headless`}},
	{"1.40 without ClusterIP, with load balancer addresses", `
spec: {clusterIP: "", type: LoadBalancer, externalIPs: [192.0.2.1], ports: [{port: 80, nodePort: 30080}]}
status: {loadBalancer: {ingress: [{hostname: x}, {ip: 203.0.113.10}, {ip: "2001:db8::10"}]}}`,
		named + "ExternalIPs [192.0.2.1]\nLoadBalancerIPs [203.0.113.10 2001:db8::10]\nPorts [{Name: Protocol:tcp Port:80 NodePort:30080}]\nNoClusterIP true", []string{
			"warning: spec.externalIPs" + notAlone, "warning: spec.ports[0].nodePort: 30080" + strings.TrimPrefix(notAlone, ":")}},
	{"1.40 of another type", `{spec: {clusterIP: ""}, status: {loadBalancer: {ingress: [{ip: 203.0.113.10}]}}}`, "",
		[]string{`warning: spec.clusterIP: missing: nothing of this Service is served; give it an address, or "None" if it is headless`}},
	{"1.40 all for the load balancer", `{spec: {clusterIP: "", type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 203.0.113.10, ipMode: Proxy}]}}}`, "",
		[]string{"warning: status.loadBalancer.ingress: missing: nothing of this Service is served; write its load balancer address there, because nftproxy assigns none, or give it a clusterIP"}},
	{"1.7 ExternalName with a ClusterIP", `spec: {type: ExternalName, externalName: example.com}`, "", nil},
	{"1.14 clusterIP alone decides", `spec: {clusterIP: None, clusterIPs: [10.96.0.1], ipFamilies: [IPv4]}`, "", nil},
	{"1.36 a bad ClusterIP does not cost the rest", `spec: {clusterIP: x, externalIPs: [192.0.2.1]}`, named + "ExternalIPs [192.0.2.1]",
		[]string{`spec.clusterIP: "x"` + notAnIP}},
}

var serviceAddresses = []conversion{
	{"1.12 without ipFamilies clusterIP counts", `spec: {clusterIPs: [10.96.0.1, "fd00::1"]}`, simple, nil},
	{"1.13 with ipFamilies clusterIPs count", `spec: {clusterIPs: [10.96.0.1, "fd00::1"], ipFamilies: [IPv4, IPv6]}`, named + "ClusterIPs [10.96.0.1 fd00::1]", nil},
	{"1.13 in any order", `spec: {clusterIP: "fd00::1", clusterIPs: ["fd00::1", 10.96.0.1], ipFamilies: [IPv6, IPv4]}`, named + "ClusterIPs [fd00::1 10.96.0.1]", nil},
	{"1.13 absent index", `spec: {clusterIPs: [10.96.0.1], ipFamilies: [IPv4, IPv6]}`, simple, nil},
	{"1.13 no clusterIPs", `spec: {ipFamilies: [IPv4]}`, named, nil},
	{"1.16 external IPs of any type and family", `spec: {externalIPs: [192.0.2.1, "", " ", foo, "fd00::2"]}`,
		simple + "ExternalIPs [192.0.2.1 fd00::2]", []string{`spec.externalIPs[3]: "foo"` + notAnIP}},
	{"1.18 ipMode, 1.19 host names", `status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {ip: 192.0.2.2, ipMode: VIP}, {ip: 192.0.2.3, ipMode: Proxy}, {hostname: lb.example.com}]}}`,
		simple + "LoadBalancerIPs [192.0.2.1 192.0.2.2]", nil},
	{"1.19 loadBalancerIP", `{spec: {loadBalancerIP: 5.6.7.8}, status: {loadBalancer: {ingress: [{ip: 10.1.2.4}]}}}`, simple + "LoadBalancerIPs [10.1.2.4]", nil},
	{"1.33 leading zeros", `
spec: {clusterIP: 172.30.0.041, externalIPs: [192.168.099.022]}
status: {loadBalancer: {ingress: [{ip: 1.2.3.004}]}}`, named + "ClusterIPs [172.30.0.41]\nExternalIPs [192.168.99.22]\nLoadBalancerIPs [1.2.3.4]", nil},
	{"1.35 IPv4-mapped", `spec: {clusterIP: "::ffff:10.96.0.1", clusterIPs: ["::ffff:10.96.0.1"], ipFamilies: [IPv4]}`, simple, nil},
	{"1.23 blanks around ranges", `spec: {loadBalancerSourceRanges: [" 203.0.113.0/25", " ", x]}`, simple + "SourceRanges [203.0.113.0/25]",
		[]string{`spec.loadBalancerSourceRanges[2]: "x" is not an IP range: write it like 10.0.0.0/8 or fd00::/64`}},
	{"1.24 length 0 opens its family", `spec: {loadBalancerSourceRanges: [10.0.0.0/8, 0.0.0.0/0, "fd00::/64"]}`, simple + "SourceRanges [fd00::/64]", nil},
	{"1.24 length 1 does not", `spec: {loadBalancerSourceRanges: [0.0.0.0/1]}`, simple + "SourceRanges [0.0.0.0/1]", nil},
	{"1.25 ranges of the other family", `{spec: {loadBalancerSourceRanges: ["fd00::/64"]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}`,
		simple + "LoadBalancerIPs [192.0.2.1]\nSourceRanges [fd00::/64]",
		[]string{"warning: spec.loadBalancerSourceRanges: has no IPv4 range: the load balancer address 192.0.2.1 is open to all clients; add a range, or 0.0.0.0/0 to say so"}},
	{"1.25 an address that is not served", `{spec: {loadBalancerSourceRanges: [10.0.0.0/8]}, status: {loadBalancer: {ingress: [{ip: "2001:db8::98"}]}}}`,
		simple + "LoadBalancerIPs [2001:db8::98]\nSourceRanges [10.0.0.0/8]", nil},
	{"4.31 an external IP beside ranges", `{spec: {externalIPs: [192.0.2.1, 192.0.2.2, "fd00::2"], loadBalancerSourceRanges: [10.0.0.0/8]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}`,
		simple + "ExternalIPs [192.0.2.1 192.0.2.2 fd00::2]\nLoadBalancerIPs [192.0.2.1]\nSourceRanges [10.0.0.0/8]",
		[]string{"warning: spec.loadBalancerSourceRanges: is for load balancer addresses: the external IP 192.0.2.2 is open to all clients; list them in the annotation nftproxy.dev/source-ranges"}},
	{"1.16 link-local addresses", `spec: {externalIPs: [169.254.169.254, "fe80::1", "fe80::5%eth0", 192.0.2.1]}`, simple + "ExternalIPs [192.0.2.1]", []string{
		`spec.externalIPs[0]: "169.254.169.254" is a link-local address: use one that can be routed`,
		`spec.externalIPs[1]: "fe80::1" is a link-local address: use one that can be routed`,
		`spec.externalIPs[2]: "fe80::5%eth0" is a link-local address: use one that can be routed`}},
	{"1.26 ranges that overlap, 1.34 with host bits", `spec: {loadBalancerSourceRanges: [10.20.30.40/16, 10.20.0.0/16, 10.0.0.0/8]}`,
		simple + "SourceRanges [10.20.0.0/16 10.0.0.0/8]", nil},
}

var servicePorts = []conversion{
	{"1.10 empty name", `spec: {ports: [{port: 80}]}`, simple + "Ports [{Name: Protocol:tcp Port:80 NodePort:0}]", nil},
	{"1.11 one number, two protocols", `spec: {ports: [{name: a, port: 53, protocol: TCP}, {name: b, port: 53, protocol: UDP}]}`,
		simple + "Ports [{Name:a Protocol:tcp Port:53 NodePort:0} {Name:b Protocol:udp Port:53 NodePort:0}]", nil},
	{"1.20 nodePort of any type, 1.21 none", `spec: {ports: [{name: a, port: 80, nodePort: 30080}, {name: b, port: 81, nodePort: 0}]}`,
		simple + "Ports [{Name:a Protocol:tcp Port:80 NodePort:30080} {Name:b Protocol:tcp Port:81 NodePort:0}]", nil},
	{"1.31 targetPort is not read", `spec: {ports: [{port: 80, targetPort: nonsense}]}`, simple + "Ports [{Name: Protocol:tcp Port:80 NodePort:0}]", nil},
	{"1.36 a bad port does not cost the others", `spec: {ports: [{name: a, port: 80, protocol: ICMP}, {name: b, port: 70000}, {name: c, port: 80, nodePort: 70000}]}`,
		simple + "Ports [{Name:c Protocol:tcp Port:80 NodePort:0}]", []string{
			`spec.ports[0].protocol: "ICMP" is not a protocol: use "TCP", "UDP" or "SCTP"`,
			`spec.ports[1].port: 70000 is not a port number: use 1 to 65535`,
			`spec.ports[2].nodePort: 70000 is not a port number: use 1 to 65535, or 0 for none`}},
	{"one node port, two protocols", `spec: {ports: [{name: a, port: 53, nodePort: 30053}, {name: b, port: 53, nodePort: 30053, protocol: UDP}]}`,
		simple + "Ports [{Name:a Protocol:tcp Port:53 NodePort:30053} {Name:b Protocol:udp Port:53 NodePort:30053}]", nil},
}

var servicePolicies = []conversion{
	{"1.27 Local of type ClusterIP", `spec: {externalTrafficPolicy: Local}`, simple, nil},
	{"1.27 Local of type ClusterIP with external IPs, even bad ones", `spec: {externalTrafficPolicy: Local, externalIPs: [""]}`, simple + "ExternalPolicy Local", nil},
	{"1.27 Local of type NodePort", `spec: {type: NodePort, externalTrafficPolicy: Local}`, simple + "ExternalPolicy Local", nil},
	{"1.28 internal policy", `spec: {internalTrafficPolicy: Local}`, simple + "InternalPolicy Local", nil},
	{"1.29 health check port", `spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 32000}`, simple + "ExternalPolicy Local\nHealthCheckNodePort 32000", nil},
	{"1.29 of policy Cluster", `spec: {type: LoadBalancer, healthCheckNodePort: 32000}`, simple, nil},
	{"1.29 of type NodePort", `spec: {type: NodePort, externalTrafficPolicy: Local, healthCheckNodePort: 32000}`, simple + "ExternalPolicy Local", nil},
	{"1.29 zero", `spec: {type: LoadBalancer, externalTrafficPolicy: Local}`, simple + "ExternalPolicy Local",
		[]string{"warning: spec.healthCheckNodePort: missing: load balancers cannot ask this node whether it has endpoints; give it a port number"}},
	{"1.30 affinity timeout", `spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}}`, simple + "AffinityTimeout 1m0s", nil},
	{"1.30 default timeout", `spec: {sessionAffinity: ClientIP}`, simple + "AffinityTimeout 3h0m0s", nil},
	{"1.30 bad timeout", `spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}}`, simple + "AffinityTimeout 3h0m0s",
		[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 0 is not a timeout: use 1 to 86400"}},
	{"affinity None", `spec: {sessionAffinity: None}`, simple, nil},
}
