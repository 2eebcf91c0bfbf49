package e2e

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// Endpoints as the controller of Kubernetes writes them, for pods that become
// ready, stop being ready, and end.
func TestPods(t *testing.T) {
	c := newCluster(t, 3, "--disable-admission-plugins", "ServiceAccount")
	c.startControllers("endpointslice-controller")
	c.StartProxy(testbed.ProxyUser)
	selecting := testbed.DualStack("web")
	selecting.Spec.Selector = podLabels
	web := c.CreateService(selecting)
	c.Refused(web)

	for i, p := range c.Pods {
		c.createPod(p)
		c.Served(web, c.Pods[:i+1]...)
	}
	c.setReady(c.Pods[0], false)
	c.Served(web, c.Pods[1:]...)

	// A terminating pod gets connections only if all others are terminating
	// too.
	c.deletePod(c.Pods[1], 600)
	c.Served(web, c.Pods[2])
	c.deletePod(c.Pods[2], 600)
	c.Served(web, c.Pods[1:]...)
	c.deletePod(c.Pods[1], 0)
	c.Served(web, c.Pods[2])
	c.deletePod(c.Pods[2], 0)
	c.Refused(web)
	c.setReady(c.Pods[0], true)
	c.Served(web, c.Pods[0])
}

var podLabels = map[string]string{"app": "web"}

// startControllers starts some controllers of the controller manager.
func (c *cluster) startControllers(names string) {
	c.T.Helper()
	testbed.Start(c.T, c.Node, testbed.ControllerManager, "--kubeconfig", c.Kubeconfig("controllers", "system:masters"),
		"--controllers", names, "--leader-elect=false")
}

// createPod does what a scheduler and a kubelet do.
func (c *cluster) createPod(h *netlab.Host) {
	c.T.Helper()
	_, err := c.API.CoreV1().Pods(testbed.Namespace).Create(c.T.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: h.Name, Labels: podLabels},
		Spec:       corev1.PodSpec{NodeName: testbed.NodeName, Containers: []corev1.Container{{Name: "echo", Image: "echo"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	c.setReady(h, true)
}

// setReady does what a kubelet does after it has probed a pod.
func (c *cluster) setReady(h *netlab.Host, ready bool) {
	c.T.Helper()
	pods := c.API.CoreV1().Pods(testbed.Namespace)
	pod, err := pods.Get(c.T.Context(), h.Name, metav1.GetOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
		PodIP:      h.IPv4.String(),
		PodIPs:     []corev1.PodIP{{IP: h.IPv4.String()}, {IP: h.IPv6.String()}},
	}
	if _, err := pods.UpdateStatus(c.T.Context(), pod, metav1.UpdateOptions{}); err != nil {
		c.T.Fatal(err)
	}
}

// deletePod gives a pod some seconds to end, without a kubelet. With 0 it is
// gone.
func (c *cluster) deletePod(h *netlab.Host, grace int64) {
	c.T.Helper()
	options := metav1.DeleteOptions{GracePeriodSeconds: &grace}
	if err := c.API.CoreV1().Pods(testbed.Namespace).Delete(c.T.Context(), h.Name, options); err != nil {
		c.T.Fatal(err)
	}
}
