package nodes

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whatever ends the pods of the DaemonSet, no request fails: the rules stay until
// the next pod takes them over.
func TestPodsOfProxyEnd(t *testing.T) {
	for _, x := range []struct {
		name string
		do   func(c *cluster, t *testing.T, pod *corev1.Pod)
	}{
		{"upgrade and rollback", func(c *cluster, t *testing.T, _ *corev1.Pod) {
			c.setImage(t, kubelets.NFTProxyNextTag)
			c.undo(t)
			c.runsImage(t, kubelets.NFTProxyTag)
		}},
		{"eviction", func(c *cluster, t *testing.T, pod *corev1.Pod) {
			err := c.API.CoreV1().Pods(pod.Namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: pod.ObjectMeta})
			if err != nil {
				t.Fatal(err)
			}
			c.anotherPod(t, pod)
		}},
		{"forced deletion", func(c *cluster, t *testing.T, pod *corev1.Pod) {
			c.kubectl(t, "-n", pod.Namespace, "delete", "pod", pod.Name, "--force", "--grace-period=0")
			c.anotherPod(t, pod)
		}},
		{"kill", func(c *cluster, t *testing.T, pod *corev1.Pod) {
			c.signal(t, pod, "KILL")
			c.restarted(t, pod, "Error")
		}},
		{"out of memory", (*cluster).outOfMemory},
		{"hang, until the liveness probe fails", func(c *cluster, t *testing.T, pod *corev1.Pod) {
			c.signal(t, pod, "STOP")
			c.restarted(t, pod, "Error")
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := on(t, kubelets.NFTProxy)
			l := c.startLoad(t, everywhere...)
			x.do(c, t, c.proxyPod(t, "n1"))
			l.check()
		})
	}
}

// proxyPod returns the pod of nftproxy on a node, once it is the only one.
func (c *cluster) proxyPod(t *testing.T, node string) (pod *corev1.Pod) {
	t.Helper()
	eventually(t, func() error {
		pods, err := c.API.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{
			LabelSelector: "k8s-app=nftproxy", FieldSelector: "spec.nodeName=" + node})
		if err == nil && len(pods.Items) != 1 {
			err = fmt.Errorf("%d pods of nftproxy on %s", len(pods.Items), node)
		}
		if err == nil {
			pod = &pods.Items[0]
		}
		return err
	})
	return pod
}

// anotherPod waits until another pod has replaced one, and is ready.
func (c *cluster) anotherPod(t *testing.T, old *corev1.Pod) {
	t.Helper()
	eventually(t, func() error {
		if p := c.proxyPod(t, old.Spec.NodeName); p.UID == old.UID || !condition(p, corev1.PodReady) {
			return fmt.Errorf("pod %s: %s", p.Name, p.Status.Phase)
		}
		return nil
	})
}

// restarted waits until the kubelet has started the container again, and it is
// ready.
func (c *cluster) restarted(t *testing.T, before *corev1.Pod, reason string) {
	t.Helper()
	eventually(t, func() error {
		p := c.proxyPod(t, before.Spec.NodeName)
		s, old := p.Status.ContainerStatuses[0], before.Status.ContainerStatuses[0]
		if s.RestartCount == old.RestartCount || !s.Ready {
			return fmt.Errorf("container of %s: %+v", p.Name, s.State)
		}
		if got := s.LastTerminationState.Terminated; got == nil || got.Reason != reason {
			return fmt.Errorf("container ended with %+v, want %s", got, reason)
		}
		return nil
	})
}

// signal sends a signal to the process of a pod.
func (c *cluster) signal(t *testing.T, pod *corev1.Pod, name string) {
	t.Helper()
	out, err := c.Node(pod.Spec.NodeName).Output("pgrep", "-f", "^/usr/local/bin/nftproxy run")
	if err == nil {
		_, err = c.Node(pod.Spec.NodeName).Output("kill", "-"+name, strings.TrimSpace(out))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// setImage updates all pods to another image, one node after the other.
func (c *cluster) setImage(t *testing.T, tag string) {
	t.Helper()
	c.kubectl(t, "-n", "kube-system", "set", "image", "daemonset/nftproxy", "*="+kubelets.NFTProxyImage+":"+tag)
	c.runsImage(t, tag)
}

func (c *cluster) runsImage(t *testing.T, tag string) {
	t.Helper()
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/nftproxy", "--timeout=180s")
	for _, n := range c.NodeList {
		if got := c.proxyPod(t, n.Name).Spec.Containers[0].Image; !strings.HasSuffix(got, ":"+tag) {
			t.Errorf("image on %s: %s, want tag %s", n.Name, got, tag)
		}
	}
}

// outOfMemory limits the memory of nftproxy, and creates Services until the kernel
// kills it. Then the change is undone.
func (c *cluster) outOfMemory(t *testing.T, _ *corev1.Pod) {
	c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "nftproxy", "-p", `{"spec": {"template": {"spec": {"containers": [
		{"name": "nftproxy", "resources": {"limits": {"memory": "12Mi"}, "requests": {"memory": "10Mi"}}}]}}}}`)
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/nftproxy", "--timeout=180s")
	c.addServices(t, "many", 6000)
	for _, n := range c.NodeList {
		eventually(t, func() error {
			s := c.proxyPod(t, n.Name).Status.ContainerStatuses[0]
			for _, ended := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
				if ended != nil && ended.Reason == "OOMKilled" {
					return nil
				}
			}
			return fmt.Errorf("container on %s: %+v", n.Name, s.State)
		})
	}
	c.undo(t)
}

// undo returns the DaemonSet to what it was before the last change.
func (c *cluster) undo(t *testing.T) {
	t.Helper()
	c.kubectl(t, "-n", "kube-system", "rollout", "undo", "daemonset/nftproxy")
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/nftproxy", "--timeout=180s")
}
