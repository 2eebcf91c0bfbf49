package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/tarball"
)

// pretendPod makes the pod in which nftproxy would run on the node, without a kubelet.
func (c *cluster) pretendPod() {
	c.T.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // there is no controller manager
	if _, err := c.API.CoreV1().ServiceAccounts(systemNamespace).Create(c.T.Context(), account, metav1.CreateOptions{}); err != nil {
		c.T.Fatal(err)
	}
	pods := c.API.CoreV1().Pods(systemNamespace)
	pod, err := pods.Create(c.T.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "nftproxy-1", Labels: map[string]string{"k8s-app": "nftproxy"}},
		Spec: corev1.PodSpec{NodeName: testbed.NodeName, HostNetwork: true, Containers: []corev1.Container{{
			Name: "nftproxy", Image: "nftproxy", Ports: []corev1.ContainerPort{{ContainerPort: 10249}}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	address := c.Node.IPv4.String()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, HostIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if _, err := pods.UpdateStatus(c.T.Context(), pod, metav1.UpdateOptions{}); err != nil {
		c.T.Fatal(err)
	}
}

// unpack returns the files of an archive in one text, each after its name.
func unpack(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for name, f := range tarball.Read(t, content) {
		fmt.Fprintf(&out, "\n== %s\n%s", name, f.Content)
	}
	return out.String()
}

// TestBundle: 18.20, 18.21. From a real API server the archive has the documents of a node, a Service
// with a problem and its EndpointSlice, and no Secret.
func TestBundle(t *testing.T) {
	c := newCluster(t, 1)
	broken := c.CreateService(testbed.DualStack("checkout"))
	const marker = "aHVudGVyMjI"
	if _, err := c.API.CoreV1().Secrets(testbed.Namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "checkout"}, StringData: map[string]string{"password": marker},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.pretendPod()
	proxy := c.StartProxyOn(c.Node, "--metrics-bind-address", "0.0.0.0:10249")
	c.HasSynced(c.Node, proxy)
	file := filepath.Join(c.Dir, "case.tar.gz")
	c.Run(exec.Command(testbed.Plugin.Path, "bundle", "--via", "proxy", "--file", file, "--kubeconfig", c.Kubeconfig("admin", "system:masters")))
	text := unpack(t, file)
	address := broken.Frontend(model.IPv4).Addr().String()
	for _, want := range []string{"/nodes/" + testbed.NodeName + "/rules.txt\ntable ip nftproxy", "/cluster/objects/" + testbed.Namespace + "/checkout.json", address, `"NoEndpoints"`, "kubeproxy_sync_proxy_rules"} {
		if !strings.Contains(text, want) {
			t.Errorf("the archive lacks %q", want)
		}
	}
	if strings.Contains(text, marker) || strings.Contains(text, `"kind": "Secret"`) {
		t.Error("the archive has a Secret")
	}
	if t.Failed() {
		i := strings.Index(text, "/contents.txt")
		fmt.Fprintln(t.Output(), text[max(i, 0):])
	}
}
