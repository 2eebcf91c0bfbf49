package e2e

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/model"
)

const conditionType corev1.NodeConditionType = "nftproxy.dev/ServicesProgrammed"

// grantCondition gives the proxy the right that the chart gives it with nodeCondition.
func (c *cluster) grantCondition() {
	c.T.Helper()
	roles, name := c.API.RbacV1(), metav1.ObjectMeta{Name: "nftproxy-node-condition"}
	_, err := roles.ClusterRoles().Create(c.T.Context(), &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	_, err = roles.ClusterRoleBindings().Create(c.T.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: testbed.ProxyUser}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
}

// condition returns the Node and its condition, or nil.
func (c *cluster) condition() (*corev1.Node, *corev1.NodeCondition) {
	c.T.Helper()
	node, err := c.API.CoreV1().Nodes().Get(c.T.Context(), testbed.NodeName, metav1.GetOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	for i := range node.Status.Conditions {
		if n := &node.Status.Conditions[i]; n.Type == conditionType {
			return node, n
		}
	}
	return node, nil
}

// conditionBecomes waits for a status, and returns the condition.
func (c *cluster) conditionBecomes(status corev1.ConditionStatus, reason string) (found *corev1.NodeCondition) {
	c.T.Helper()
	testbed.Eventually(c.T, func() error {
		if _, found = c.condition(); found == nil || found.Status != status || found.Reason != reason {
			return fmt.Errorf("the condition is %+v, want %s, %s", found, status, reason)
		}
		return nil
	})
	return found
}

// TestNodeCondition: 10.27, 10.29, 10.30. With the right of the chart, the proxy writes its condition
// of the Node and nothing else of it: true once the Services are served, false if changes
// wait, and the same after a restart.
func TestNodeCondition(t *testing.T) {
	c := newCluster(t, 1)
	service := c.CreateService(testbed.DualStack("web"))
	c.SetEndpoints(service, c.Pods[0])
	c.grantCondition()
	before, _ := c.condition()
	run := func() *testbed.Process { return c.StartProxyOn(c.Node, "--node-condition", "--sync-period", "1s") }
	proxy := run()
	first := c.conditionBecomes(corev1.ConditionTrue, "RulesApplied")
	if err := testbed.OnlyTo(c.Client, testbed.Target{Network: "tcp", To: service.Frontend(model.IPv4)}, c.Pods); err != nil {
		t.Errorf("the condition is true, and the Service is not served: %v", err)
	}
	after, _ := c.condition()
	if len(after.Status.Conditions) != len(before.Status.Conditions)+1 || len(after.Status.Addresses) != len(before.Status.Addresses) {
		t.Errorf("the status was %+v, and is %+v", before.Status, after.Status)
	}

	proxy.End(t)
	if _, stays := c.condition(); stays == nil || *stays != *first {
		t.Errorf("the end of the process changes the condition from %+v to %+v", first, stays)
	}
	written := after.ResourceVersion
	proxy = run()
	c.HasSynced(c.Node, proxy)
	if node, _ := c.condition(); node.ResourceVersion != written {
		t.Errorf("a restart writes the Node: version %s, before %s", node.ResourceVersion, written)
	}
	proxy.End(t)
}

// TestNodeConditionFails: 10.28. Rules that another process owns cannot be changed: the
// condition becomes false, and true again.
func TestNodeConditionFails(t *testing.T) {
	c := newCluster(t, 1)
	c.grantCondition()
	owner := testbed.Start(t, c.Node, testbed.NFTProxy, "run", "--kubeconfig", c.Kubeconfig(testbed.ProxyUser), "--hostname-override", testbed.NodeName,
		"--cluster-cidr", testbed.ClusterCIDRs, "--conntrack-max-per-core", "0")
	c.HasSynced(c.Node, owner)
	second := c.StartProxyOn(c.Node, "--node-condition", "--sync-period", "1s", "--metrics-bind-address", "127.0.0.1:10259", "--healthz-bind-address", "127.0.0.1:10258")
	c.conditionBecomes(corev1.ConditionFalse, "NotSynced")
	owner.End(t)
	c.conditionBecomes(corev1.ConditionTrue, "RulesApplied")
	second.End(t)
}
