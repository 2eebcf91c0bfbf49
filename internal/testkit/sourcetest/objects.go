package sourcetest

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// Objects of an API server, without their types.
const (
	WebYAML   = `{metadata: {namespace: a, name: web}, spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}}`
	SliceYAML = `{metadata: {namespace: a, name: web-1, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{name: "", port: 8080}], endpoints: [{addresses: [10.128.0.1]}]}`
	NodeYAML  = `{metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}}`
)

// ManyKeys returns a mapping of n keys in flow style.
func ManyKeys(n int) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		fmt.Fprintf(&b, "%x,", i)
	}
	return b.String() + "}"
}

// ManyObjects returns n Services and n EndpointSlices of 4 endpoints, with the
// fields that an API server adds.
func ManyObjects(n int) []any {
	var out []any
	ready, no := true, false
	for i := range n {
		name := fmt.Sprintf("service-%d", i)
		meta := metav1.ObjectMeta{
			Name: name, Namespace: "default", ResourceVersion: "123456", UID: types.UID(fmt.Sprintf("0c1d7a52-3f0b-4b9c-8f1e-%012d", i)),
			Labels: map[string]string{"app": name},
		}
		ip := fmt.Sprintf("10.96.%d.%d", i/256, i%256)
		out = append(out, &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: meta,
			Spec: corev1.ServiceSpec{
				Type: "ClusterIP", ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: []corev1.IPFamily{"IPv4"},
				Ports:           []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}},
				SessionAffinity: "None", Selector: map[string]string{"app": name},
			},
		})
		meta.Name += "-x7k2p"
		meta.Labels = map[string]string{"kubernetes.io/service-name": name, "app": name}
		port, portName, protocol := int32(8080), "http", corev1.ProtocolTCP
		slice := &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: meta,
			AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
		}
		for j := range 4 {
			node := fmt.Sprintf("node-%d", (i+j)%100)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", 128+j, i/256, i%256)},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: &no},
				NodeName:   &node,
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("%s-%d", name, j)},
			})
		}
		out = append(out, slice)
	}
	return out
}

// Read reads an object as the API server gives it.
func Read[T any](t testing.TB, text string) *T {
	t.Helper()
	o := new(T)
	Check(t, yaml.UnmarshalStrict([]byte(text), o))
	return o
}
