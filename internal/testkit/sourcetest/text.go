package sourcetest

import (
	"bytes"
	"fmt"
	"strings"
)

// serviceText and sliceText are what kubectl prints of a Service and its EndpointSlice.
const (
	serviceText = `apiVersion: v1
kind: Service
metadata:
  creationTimestamp: null
  labels:
    app: $NAME
  name: $NAME
  namespace: default
  resourceVersion: "123456"
  uid: 0c1d7a52-3f0b-4b9c-8f1e-000000000000
spec:
  clusterIP: 10.96.$IP
  clusterIPs:
  - 10.96.$IP
  ipFamilies:
  - IPv4
  ports:
  - name: http
    port: 80
    protocol: TCP
    targetPort: 0
  selector:
    app: $NAME
  sessionAffinity: None
  type: ClusterIP
status:
  loadBalancer: {}
`
	endpointText = `- addresses:
  - 10.$NET.$IP
  conditions:
    ready: true
    serving: true
    terminating: false
  nodeName: node-$NET
  targetRef:
    kind: Pod
    name: $NAME-$NET
    namespace: default
`
	sliceText = `kind: EndpointSlice
metadata:
  labels:
    app: $NAME
    kubernetes.io/service-name: $NAME
  name: $NAME-x7k2p
  namespace: default
  resourceVersion: "123456"
  uid: 0c1d7a52-3f0b-4b9c-8f1e-000000000000
ports:
- name: http
  port: 8080
  protocol: TCP
`
)

// ManyTexts returns the YAML of n Services, at most 65,536, and n EndpointSlices of 4 endpoints,
// as kubectl prints them.
func ManyTexts(n int) (texts []string) {
	for i := range n {
		fill := strings.NewReplacer("$NAME", fmt.Sprintf("service-%d", i), "$IP", fmt.Sprintf("%d.%d", i/256, i%256))
		slice := "addressType: IPv4\napiVersion: discovery.k8s.io/v1\nendpoints:\n"
		for j := range 4 {
			slice += strings.ReplaceAll(endpointText, "$NET", fmt.Sprint(128+j))
		}
		texts = append(texts, fill.Replace(serviceText), fill.Replace(slice+sliceText))
	}
	return texts
}

// DocumentsOf returns texts of objects as the documents of a file.
func DocumentsOf(texts []string) []byte {
	return []byte("---\n" + strings.Join(texts, "---\n"))
}

// ListOf returns texts of objects as a List.
func ListOf(texts []string) []byte {
	var b bytes.Buffer
	b.WriteString("apiVersion: v1\nitems:\n")
	for _, text := range texts {
		b.WriteString("- " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n")
	}
	b.WriteString("kind: List\nmetadata:\n  resourceVersion: \"\"\n")
	return b.Bytes()
}
