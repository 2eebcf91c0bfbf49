package worlds

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Service is a Service of Kubernetes with its EndpointSlices.
type Service struct {
	*corev1.Service
	Slices []*discoveryv1.EndpointSlice
}

const prefix = "nftproxy.dev/"

// common are the settings that Services and Balances have under the same name. Limits are out of
// the reach of a test.
var common = []setting{
	{"scheduler", 45, []string{"round-robin", "random", "source-hash", "maglev", "maglev-port"}},
	{"client-addresses", 20, []string{"keep", "masquerade"}},
	{"on-failure", 20, []string{"keep", "close"}},
	{"slow-start", 20, []string{"1s", "10s", "5m"}},
	{"observe", 15, []string{"connections"}},
	{"fast-path", 15, []string{"use", "avoid"}},
}

var serviceSettings = []setting{
	{"max-connections", 20, []string{"20000", "30000"}},
	{"max-connections-per-client", 20, []string{"20000", "30001"}},
	{"connection-rate", 20, []string{"20000/second", "30000/second burst 60000"}},
	{"connection-rate-per-client", 20, []string{"20000/second", "30000/second burst 60000"}},
	{"zone-floor", 25, []string{"33%", "50%", "100%", "1%"}},
	{"health-check", 25, []string{"{tcp: , port: 8081}", "{tcp: , port: 8080, interval: 1s}", "{tcp: , port: 8080, interval: 1s, whenAllFail: reject}"}},
}

// service draws the n-th Service.
func (w *World) service(n int) *Service {
	kind := drawOne(w.dice, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer)
	s := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", n), Namespace: "default", Annotations: w.annotations(),
			CreationTimestamp: metav1.Date(2026, 1, 1+w.IntN(28), 0, 0, 0, 0, time.UTC)},
		Spec: corev1.ServiceSpec{
			Type: kind, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			IPFamilyPolicy:        new(corev1.IPFamilyPolicyRequireDualStack),
			ClusterIPs:            []string{fmt.Sprintf("10.96.1.%d", n), fmt.Sprintf("fd00:10:96::1:%x", n)},
			InternalTrafficPolicy: new(drawOne(w.dice, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)),
			Ports:                 w.ports(n, kind),
		},
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	w.addOutside(s)
	if seconds := drawOne(w.dice, 0, 0, 0, 60, 600, 601+n); seconds > 0 {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(seconds))}}
	}
	if w.isIn(30) {
		s.Spec.TrafficDistribution = new(drawOne(w.dice, "PreferSameZone", "PreferSameNode", "PreferClose"))
	}
	out := &Service{Service: s}
	w.addSlices(out)
	return out
}

// addOutside adds what clients outside of the cluster dial.
func (w *World) addOutside(s *corev1.Service) {
	if s.Spec.Type != corev1.ServiceTypeClusterIP {
		s.Spec.ExternalTrafficPolicy = drawOne(w.dice, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	if w.isIn(20) {
		s.Spec.ExternalIPs = []string{drawOne(w.dice, outside4...)}
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	for _, a := range slices.Concat(drawSome(w.dice, 1, 2, outside4), drawSome(w.dice, 0, 2, outside6)) {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	if w.isIn(20) {
		s.Spec.LoadBalancerSourceRanges = drawSome(w.dice, 2, 2, slices.DeleteFunc(slices.Clone(clients), func(c string) bool { return !strings.Contains(c, "/") }))
	}
}

func (w *World) annotations() map[string]string {
	values := w.drawSettings(slices.Concat(common, serviceSettings))
	if strings.HasPrefix(values["scheduler"], "maglev") {
		values["maglev-table-size"] = drawOne(w.dice, "251", "509")
	}
	if w.isIn(20) {
		values["source-ranges"] = strings.Join(drawSome(w.dice, 1, 4, clients), ", ")
	}
	if w.isIn(20) {
		values["denied-sources"] = strings.Join(drawSome(w.dice, 1, 2, clients), ", ")
	}
	if w.isIn(30) {
		values["ports"] = w.ranges()
	}
	out := make(map[string]string)
	for name, value := range values {
		out[prefix+name] = value
	}
	return out
}

// ranges draws the annotation for further ports.
func (w *World) ranges() string {
	p := drawOne(w.dice, "/udp", "/tcp", "", "")
	return drawOne(w.dice, "9000-9019"+p, "9005-9009"+p, "1000-1500"+p+":8081", "1000-1000"+p+":5000", "7000-7019"+p+":9000-9019",
		"all"+p+":8080", "all"+p, "8081"+p, "9000-9009"+p+", 9010-9019"+p+":5000, 8080"+p, "1-65535"+p+":8080", "79-81"+p+":8080")
}

// ports draws the ports of a Service, which differ from each other, and may be those of another one.
func (w *World) ports(n int, kind corev1.ServiceType) (out []corev1.ServicePort) {
	for i := range 1 + w.IntN(3) {
		p := corev1.ServicePort{
			Name: fmt.Sprintf("p%d", i), Protocol: drawOne(w.dice, corev1.ProtocolTCP, corev1.ProtocolUDP),
			Port: drawOne[int32](w.dice, 80, 81, 1200, 5000, 9003), TargetPort: intstr.FromInt32(drawOne[int32](w.dice, 8080, 8081, 5000)),
		}
		if kind != corev1.ServiceTypeClusterIP && w.isIn(80) {
			p.NodePort = 30000 + int32(drawOne(w.dice, 3*n+i, 3*n+i, 7))
		}
		if !slices.ContainsFunc(out, func(o corev1.ServicePort) bool {
			return o.Protocol == p.Protocol && (o.Port == p.Port || o.NodePort == p.NodePort && p.NodePort != 0)
		}) {
			out = append(out, p)
		}
	}
	return out
}

// addSlices draws the EndpointSlices, one of each family.
func (w *World) addSlices(s *Service) {
	annotations := make(map[string]string)
	if w.isIn(30) {
		annotations[prefix+"weight"] = drawOne(w.dice, "3", "0", fmt.Sprintf("%s=3,%s=0,%s=5", Pods[0].IPv4, Pods[1].IPv4, Pods[0].IPv6))
	}
	if w.isIn(20) {
		annotations[prefix+"priority"] = drawOne(w.dice, "1", fmt.Sprintf("%s=1,%s=2", Pods[0].IPv4, Pods[0].IPv6))
	}
	hinted := w.isIn(30)
	s.Slices = nil
	for _, f := range model.Families {
		slice := &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", s.Name, f), Namespace: s.Namespace, Annotations: annotations,
				Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
			AddressType: discoveryv1.AddressType(f.String()),
		}
		for _, p := range s.Spec.Ports {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(p.TargetPort.IntVal)})
		}
		servers := slices.Clone(Pods)
		if w.isIn(15) {
			servers = append(servers, absent)
		}
		for _, h := range drawSome(w.dice, 0, 4, servers) {
			slice.Endpoints = append(slice.Endpoints, w.endpoint(hostAddress(h, f), hinted))
		}
		s.Slices = append(s.Slices, slice)
	}
}

func hostAddress(h Host, f model.Family) netip.Addr {
	if f == model.IPv6 {
		return h.IPv6
	}
	return h.IPv4
}

func (w *World) endpoint(a netip.Addr, hinted bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{a.String()}, NodeName: drawOne(w.dice, new(NodeName), new(NodeName), new("node-2"), nil)}
	switch w.IntN(5) {
	case 0:
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	case 1:
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(false)}
	}
	if w.isIn(50) {
		e.Zone = new(drawOne(w.dice, zones...))
	}
	if hinted {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: drawOne(w.dice, zones...)}}}
		if w.isIn(30) {
			e.Hints.ForNodes = []discoveryv1.ForNode{{Name: drawOne(w.dice, NodeName, "node-2")}}
		}
	}
	return e
}

// zones of endpoints, of which the node is in the first one.
var zones = []string{"za", "zb"}
