package peers

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/kubectl"
)

// Label is on all objects of a test.
const Label = "nftproxy.dev/test"

// Labels of the pods that answer, which Services select.
const (
	answersLabel = "nftproxy.dev/answers" // on each
	fewLabel     = "nftproxy.dev/few"     // on the first [few] of a batch
	localLabel   = "nftproxy.dev/local"   // on every second one
	few          = 3
	// balancerClass keeps controllers of load balancers away.
	balancerClass = "nftproxy.dev/test"

	servicePort = 80
	serverPort  = 8080
)

type kind struct {
	name  string
	label string             // of its endpoints
	spec  corev1.ServiceSpec // without what all have
}

func kinds() []kind {
	local := corev1.ServiceInternalTrafficPolicyLocal
	none, class := false, balancerClass
	balancer := func(ranges ...string) corev1.ServiceSpec {
		return corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: &none, LoadBalancerClass: &class, LoadBalancerSourceRanges: ranges}
	}
	return []kind{
		{name: "cluster-ip", label: fewLabel},
		{name: "hairpin", label: answersLabel},
		{"affinity", fewLabel, corev1.ServiceSpec{SessionAffinity: corev1.ServiceAffinityClientIP}},
		{name: "no-endpoints", label: "nftproxy.dev/none"},
		{"node-port", fewLabel, corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}},
		{"local", localLabel, corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, InternalTrafficPolicy: &local}},
		// Halves of all addresses: one range of all would be no limit.
		{"allowed", fewLabel, balancer("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1")},
		{"denied", fewLabel, balancer("192.0.2.0/24", "2001:db8::/32")},
	}
}

func (k *kind) service(s *kubectl.Scratch) *corev1.Service {
	policy := corev1.IPFamilyPolicyPreferDualStack
	out := &corev1.Service{ObjectMeta: s.Meta(k.name), Spec: k.spec}
	out.Spec.IPFamilyPolicy, out.Spec.Selector = &policy, map[string]string{k.label: "true"}
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		out.Spec.Ports = append(out.Spec.Ports, corev1.ServicePort{
			Name: strings.ToLower(string(p)), Protocol: p, Port: servicePort, TargetPort: intstr.FromInt32(serverPort)})
	}
	return out
}

// balancerIPs are addresses of the load balancers, which exist nowhere but in the rules of nodes: of the ranges for
// benchmarks (RFC 2544, RFC 5180). A random number keeps the addresses of two tests apart.
func balancerIPs(families []corev1.IPFamily, n uint16) (out []corev1.LoadBalancerIngress) {
	for _, f := range families {
		a := netip.AddrFrom4([4]byte{198, 18 + byte(n>>15), byte(n>>7) | 1, byte(n<<1) | 1})
		if f == corev1.IPv6Protocol {
			a = netip.AddrFrom16([16]byte{0x20, 0x01, 0x00, 0x02, 12: byte(n >> 8), 13: byte(n), 15: 1})
		}
		out = append(out, corev1.LoadBalancerIngress{IP: a.String()})
	}
	return out
}

func (l *Lab) pod(name, node string, args ...string) *corev1.Pod {
	yes, no, grace, user := true, false, int64(0), int64(65532)
	seconds := int64(l.Limit.Seconds())
	env := []corev1.EnvVar{
		{Name: conntest.TokenVariable, Value: l.token},
		{Name: conntest.AddressesVariable, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIPs"}}},
	}
	p := &corev1.Pod{ObjectMeta: l.Meta(name)}
	p.Spec = corev1.PodSpec{
		NodeName: node, RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
		TerminationGracePeriodSeconds: &grace, ActiveDeadlineSeconds: &seconds,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "peer", Image: l.Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/usr/local/bin/nftproxy"},
			Args: append([]string{"peer", "--control", fmt.Sprint(l.Control)}, args...), Env: env,
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			SecurityContext:          &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
	return p
}

// server returns the pod that answers, the number i of its batch.
func (l *Lab) server(i int, node string) *corev1.Pod {
	p := l.pod(fmt.Sprintf("pod-%d", l.started+i), node, "--serve", fmt.Sprint(serverPort))
	p.Labels[answersLabel] = "true"
	if i < few {
		p.Labels[fewLabel] = "true"
	}
	if i%2 == 0 {
		p.Labels[localLabel] = "true"
	}
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1,
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(serverPort)}}}
	return p
}

// onHost returns the pod in the network of a node, the number i of its batch.
func (l *Lab) onHost(i int, node string) *corev1.Pod {
	p := l.pod(fmt.Sprintf("host-%d", l.started+i), node)
	p.Spec.HostNetwork, p.Spec.DNSPolicy = true, corev1.DNSDefault
	return p
}
