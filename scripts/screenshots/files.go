package main

import "strings"

// files are the input files by name.
func files() map[string]string {
	return map[string]string{
		"services.yaml": shop,
		"old.yaml":      shop,
		"new.yaml":      strings.Replace(shop, "- {addresses: [10.128.0.3], nodeName: node-1}", "- {addresses: [10.128.0.5], nodeName: node-1}", 1),
	}
}

// shop is served while the pictures are taken. The Service admin has no endpoints.
const shop = `apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.10}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.128.0.2], nodeName: node-1}
- {addresses: [10.128.0.3], nodeName: node-1}
- {addresses: [10.128.0.4], nodeName: node-1}
- {addresses: [10.128.0.9], nodeName: node-2, conditions: {ready: false, serving: true, terminating: true}}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  clusterIP: 10.96.0.20
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-1, namespace: shop, labels: {kubernetes.io/service-name: cart}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.128.0.4], nodeName: node-1}
- {addresses: [10.128.0.5], nodeName: node-1}
---
apiVersion: v1
kind: Service
metadata: {name: admin, namespace: shop}
spec:
  clusterIP: 10.96.0.30
  ports: [{name: https, port: 443}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: admin-1, namespace: shop, labels: {kubernetes.io/service-name: admin}}
addressType: IPv4
ports: [{name: https, port: 8443}]
endpoints:
- {addresses: [10.128.0.8], nodeName: node-2, conditions: {ready: false}}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: 10.96.0.53
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns-1, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]
endpoints:
- {addresses: [10.128.1.2], nodeName: node-2}
- {addresses: [10.128.1.3], nodeName: node-3}
`
