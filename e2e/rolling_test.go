package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// moment is how long a pod goes on answering after the last EndpointSlice
// dropped it: far less than usual termination grace periods.
const moment = 200 * time.Millisecond

// A workload is scaled up, rolled over to new pods and back, scaled to nothing
// and up again, and its Service is deleted and created again, while clients
// dial it without pause. No request fails unless there is no pod for it, and no
// open connection breaks (3.20, 9.3, 13.4, P58, P95).
func TestRollingLife(t *testing.T) {
	c := newCluster(t, 6, "--disable-admission-plugins", "ServiceAccount")
	for _, p := range c.Pods {
		c.StopEcho(p) // it answers while the pod runs
	}
	c.startControllers("endpointslice-controller")
	c.StartProxy(testbed.ProxyUser)
	web := c.CreateService(selecting("web"))
	c.Refused(web)
	blue, green := c.Pods[:3], c.Pods[3:]
	c.runPod(blue[0])
	c.Reached(web, blue[0])

	l := c.StartLoad(web)
	for i, p := range blue[1:] {
		c.runPod(p)
		c.Reached(web, blue[:i+2]...)
	}
	l.Hold(6)
	c.roll(web, blue, green)
	l.Hold(6)
	c.roll(web, green, blue)
	c.setReady(blue[0], false)
	c.Reached(web, blue[1:]...)
	c.setReady(blue[0], true)
	c.Reached(web, blue...)

	c.scaleToZero(l, web, blue)
	c.scaleUp(l, web, blue)
	c.recreate(l, web, blue)
	await.Span(moment) // of requests
	l.Check()
}

// selecting returns a Service of the pods, with NodePorts, like another one that
// was there before.
func selecting(name string, like ...testbed.Service) *corev1.Service {
	var clusterIPs []string
	for _, l := range like {
		clusterIPs = l.ClusterIPs
	}
	s := testbed.WithNodePorts(testbed.DualStack(name, clusterIPs...), like...)
	s.Spec.Selector = podLabels
	return s
}

// roll replaces pods by others, one after the other, as a Deployment does.
func (c *cluster) roll(s testbed.Service, from, to []*netlab.Host) {
	c.T.Helper()
	for i := range from {
		c.runPod(to[i])
		c.Reached(s, slices.Concat(from[i:], to[:i+1])...)
		c.endPod(s, from[i], slices.Concat(from[i+1:], to[:i+1]))
	}
}

// runPod starts a pod, which answers before it is ready.
func (c *cluster) runPod(p *netlab.Host) {
	c.T.Helper()
	c.StartEcho(p)
	c.createPod(p)
}

// endPod deletes a pod. It goes on answering for a while, as if it had been
// given time to drain.
func (c *cluster) endPod(s testbed.Service, p *netlab.Host, others []*netlab.Host) {
	c.T.Helper()
	c.deletePod(p, 600)
	c.Reached(s, others...)
	c.removePods(s, p)
}

// removePods ends pods that are terminating.
func (c *cluster) removePods(s testbed.Service, pods ...*netlab.Host) {
	c.T.Helper()
	for _, p := range pods {
		c.deletePod(p, 0)
	}
	testbed.Eventually(c.T, func() error { return c.inNoSlice(s, pods) })
	await.Span(moment)
	for _, p := range pods {
		c.StopEcho(p)
	}
}

// inNoSlice checks that no EndpointSlice of a service names any of the pods.
func (c *cluster) inNoSlice(s testbed.Service, pods []*netlab.Host) error {
	list, err := c.API.DiscoveryV1().EndpointSlices(testbed.Namespace).List(c.T.Context(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name})
	if err != nil {
		return err
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			for _, p := range pods {
				if a := e.Addresses[0]; a == p.IPv4.String() || a == p.IPv6.String() {
					return fmt.Errorf("%s names %s", slice.Name, p.Name)
				}
			}
		}
	}
	return nil
}

// scaleToZero ends all pods together. They are used until they are gone (3.5).
func (c *cluster) scaleToZero(l *testbed.Load, s testbed.Service, pods []*netlab.Host) {
	c.T.Helper()
	for _, p := range pods {
		c.deletePod(p, 600)
	}
	c.Reached(s, pods...)
	l.Expect(testbed.Anything)
	c.removePods(s, pods...)
	c.Refused(s)
	l.Expect(testbed.Refusals)
	await.Span(moment) // of requests
}

func (c *cluster) scaleUp(l *testbed.Load, s testbed.Service, pods []*netlab.Host) {
	c.T.Helper()
	l.Expect(testbed.Anything)
	for _, p := range pods {
		c.runPod(p)
	}
	c.Reached(s, pods...)
	l.Expect(testbed.Answers)
}

// recreate deletes a service and creates it again with its addresses and
// NodePorts.
func (c *cluster) recreate(l *testbed.Load, s testbed.Service, pods []*netlab.Host) {
	c.T.Helper()
	l.Expect(testbed.Anything)
	c.DeleteService(s)
	c.Silent(s)
	again := c.CreateService(selecting(s.Name, s))
	c.Reached(again, pods...)
	l.Expect(testbed.Answers)
}
