package e2e

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/fleet/peers"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

// TestConnectionsWithoutKubelets: 18.18, 18.19. A real API server takes the Services and pods of the test as they are.
// As no kubelet starts the pods, the command says so for the node after the time it was given, and deletes its namespace.
func TestConnectionsWithoutKubelets(t *testing.T) {
	c := newCluster(t, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go c.serviceAccounts(ctx) // as a controller manager does
	cmd := exec.Command(testbed.Plugin.Path, "test", "--image", "example.com/nftproxy@sha256:"+strings.Repeat("0", 64), "--start-timeout", "5s",
		"--kubeconfig", c.Kubeconfig("admin", "system:masters"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := c.Node.Run(cmd)
	var exit *exec.ExitError
	if want := "no node could be tested:\n  " + testbed.NodeName + ": pod "; !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out.String(), want) ||
		!strings.Contains(out.String(), " is not started: does a kubelet run on the node?, after 5s") {
		t.Errorf("%v\n%s", err, &out)
	}
	all, err := c.API.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: peers.Label})
	if err != nil || len(all.Items) != 1 || all.Items[0].DeletionTimestamp == nil || all.Items[0].Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
		t.Fatalf("%v: %+v", err, all)
	}
	c.acceptedObjects(all.Items[0].Name)
}

// serviceAccounts gives the namespaces of tests their service account.
func (c *cluster) serviceAccounts(ctx context.Context) {
	for range await.Ticks(ctx.Done(), 100*time.Millisecond) {
		all, err := c.API.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: peers.Label})
		if err != nil {
			continue // the test has ended, or the next round tries again
		}
		for i := range all.Items {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			_, _ = c.API.CoreV1().ServiceAccounts(all.Items[i].Name).Create(ctx, account, metav1.CreateOptions{}) // it may exist
		}
	}
}

// acceptedObjects checks the defaults that the API server has set in the objects of a test. The
// cluster ends with the test, so the objects stay.
func (c *cluster) acceptedObjects(namespace string) {
	c.T.Helper()
	services, err := c.API.CoreV1().Services(namespace).List(c.T.Context(), metav1.ListOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	balancers, nodePorts := 0, 0
	for i := range services.Items {
		s := &services.Items[i]
		balancers += len(s.Status.LoadBalancer.Ingress)
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				nodePorts++
			}
		}
		if len(s.Spec.IPFamilies) != 2 || len(s.Spec.Ports) != 2 {
			c.T.Errorf("Service %s has families %v and ports %v", s.Name, s.Spec.IPFamilies, s.Spec.Ports)
		}
	}
	if len(services.Items) != 8 || balancers != 4 || nodePorts != 4 {
		c.T.Errorf("%d Services, %d addresses of load balancers, %d NodePorts", len(services.Items), balancers, nodePorts)
	}
	pods, err := c.API.CoreV1().Pods(namespace).List(c.T.Context(), metav1.ListOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != testbed.NodeName || !*p.Spec.SecurityContext.RunAsNonRoot {
			c.T.Errorf("pod %s is on %s", p.Name, p.Spec.NodeName)
		}
	}
	if len(pods.Items) != 2 {
		c.T.Errorf("there are %d pods", len(pods.Items))
	}
}
