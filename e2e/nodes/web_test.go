package nodes

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// gate is a condition that pods need to be ready, as cloud providers use it: it
// says that a load balancer knows the pod.
const gate = "nftproxy.dev/known"

// webManifest is the servers of the load, and their Service. A server that is to
// end continues while its removal spreads.
const webManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata: {labels: {app: web}}
    spec:
      readinessGates: [{conditionType: ` + gate + `}]
      terminationGracePeriodSeconds: 20
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway,
         labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [pod-template-hash]}
      containers:
      - name: web
        image: ` + loadImage + `
        args: [serve]
        readinessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, failureThreshold: 1}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 8080}
  - {name: udp, port: 80, targetPort: 8080, protocol: UDP}
  - {name: grpc, port: 81, targetPort: 8081}
`

// openGates makes pods ready whose containers are, as the controller of a load
// balancer does.
func (c *cluster) openGates(ctx context.Context) {
	for range await.Ticks(ctx.Done(), 500*time.Millisecond) {
		pods, err := c.API.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			pods = &corev1.PodList{} // the API server is not there yet, or any more
		}
		for _, p := range pods.Items {
			if condition(&p, corev1.ContainersReady) && !condition(&p, gate) {
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: gate, Status: corev1.ConditionTrue})
				_, _ = c.API.CoreV1().Pods("default").UpdateStatus(ctx, &p, metav1.UpdateOptions{}) // the next round tries again
			}
		}
	}
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// rollOut replaces all servers, and waits until the old ones have gone.
func (c *cluster) rollOut(t testing.TB) {
	t.Helper()
	c.kubectl(t, "rollout", "restart", "deployment/web")
	c.kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
	eventually(t, func() error {
		pods, err := c.API.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil && len(pods.Items) != 3 {
			err = fmt.Errorf("%d servers", len(pods.Items))
		}
		return err
	})
}

// web returns the Service, once it has its addresses.
func (c *cluster) web(t testing.TB) *corev1.Service {
	t.Helper()
	var s *corev1.Service
	eventually(t, func() (err error) {
		s, err = c.API.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err == nil && len(s.Status.LoadBalancer.Ingress) != 2 {
			err = fmt.Errorf("load balancer: %v", s.Status.LoadBalancer.Ingress)
		}
		return err
	})
	return s
}

// frontends are ways to reach a Service.
type frontends func(c *cluster, s *corev1.Service) (targets []string)

// addresses are frontends at the ports of the Service itself.
func addresses(s *corev1.Service, all []string) (targets []string) {
	for _, a := range all {
		for _, p := range s.Spec.Ports {
			targets = append(targets, requests(p, a, p.Port)...)
		}
	}
	return targets
}

func clusterIPs(_ *cluster, s *corev1.Service) []string { return addresses(s, s.Spec.ClusterIPs) }

func balanced(_ *cluster, s *corev1.Service) []string {
	var all []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		all = append(all, i.IP)
	}
	return addresses(s, all)
}

// nodePorts are frontends on a node.
func nodePorts(node string) frontends {
	return func(c *cluster, s *corev1.Service) (targets []string) {
		for _, a := range []string{c.Node(node).IPv4, c.Node(node).IPv6} {
			for _, p := range s.Spec.Ports {
				targets = append(targets, requests(p, a, p.NodePort)...)
			}
		}
		return targets
	}
}

// requests are the arguments of the program load, of all kinds that suit a port.
func requests(p corev1.ServicePort, address string, port int32) (targets []string) {
	to := netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port)).String()
	for _, kind := range map[string][]string{"http": {"tcp", "kept"}, "udp": {"udp", "udp-kept"}, "grpc": {"grpc"}}[p.Name] {
		targets = append(targets, kind+"="+to)
	}
	return targets
}
