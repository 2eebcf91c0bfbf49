package test

import "text/template"

// manifest is the input of the program.
var manifest = template.Must(template.New("manifest").Parse(`
apiVersion: v1
kind: Node
metadata:
  name: node
  labels: {topology.kubernetes.io/zone: {{.Zone}}}
spec:
  podCIDRs: [{{range $i, $p := .PodCIDRs}}{{if $i}}, {{end}}"{{$p}}"{{end}}]
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
  labels: { {{- range $k, $v := .Labels}}{{$k}}: "{{$v}}", {{end -}} }
  annotations: { {{- range $k, $v := .Annotations}}{{$k}}: "{{$v}}", {{end -}} }
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.{{.N}}
  clusterIPs: ["10.96.0.{{.N}}", "fd00:10:96::{{.N}}"]
  ipFamilies: [IPv4, IPv6]
  externalIPs: [{{range $i, $a := .VIPs .ExternalIPs "198.51.100.%d" "2001:db8:1::%d"}}{{if $i}}, {{end}}"{{$a}}"{{end}}]
  internalTrafficPolicy: {{or .Internal "Cluster"}}
  externalTrafficPolicy: {{or .External "Cluster"}}
{{- with .HealthPort}}
  healthCheckNodePort: {{.}}
{{- end}}
{{- if .Affinity}}
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: {{.Affinity}}}}
{{- end}}
  loadBalancerSourceRanges: [{{range $i, $r := .SourceRanges}}{{if $i}}, {{end}}"{{$r}}"{{end}}]
  ports:
  - {name: tcp, protocol: TCP, port: {{.PortNumber}}, nodePort: {{.NodePort}}}
  - {name: udp, protocol: UDP, port: {{.PortNumber}}, nodePort: {{.NodePort}}}
  - {name: sctp, protocol: SCTP, port: {{.PortNumber}}, nodePort: {{.NodePort}}}
status:
  loadBalancer:
    ingress:
{{- range .VIPs .LoadBalancerIPs "203.0.113.%d" "2001:db8:2::%d"}}
    - ip: "{{.}}"
{{- end}}
{{- $service := .}}
{{- range .Slices}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {{.Name}}
  namespace: default
  labels: {kubernetes.io/service-name: {{$service.Name}}}
{{- if .Weight}}
  annotations: {nftproxy.dev/weight: "{{.Weight}}"}
{{- else if .Priority}}
  annotations: {nftproxy.dev/priority: "{{.Priority}}"}
{{- end}}
addressType: {{.Family}}
ports:
- {name: tcp, protocol: TCP, port: {{or $service.Target 8080}}}
{{- if not $service.OnlyTCP}}
- {name: udp, protocol: UDP, port: {{or $service.Target 8080}}}
- {name: sctp, protocol: SCTP, port: {{or $service.Target 8080}}}
{{- end}}
endpoints:
{{- $family := .Family}}
{{- range .Endpoints}}
- addresses: ["{{.Address $family}}"]
  nodeName: {{.NodeName}}
{{- with .In}}
  zone: {{.}}
{{- end}}
  conditions: { {{- .Conditions -}} }
{{- if or .Zone .Node}}
  hints:
    forZones: [{{with .Zone}}{name: {{.}}}{{end}}]
    forNodes: [{{with .Node}}{name: {{.}}}{{end}}]
{{- end}}
{{- else}} []
{{- end}}
{{- end}}
{{- end}}
`))
