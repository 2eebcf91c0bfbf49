package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// newServing makes a cluster in which a proxy serves a service.
func newServing(t *testing.T) (*cluster, testbed.Service, *testbed.Process) {
	t.Helper()
	c := newCluster(t, 3, testbed.WithoutOwnEndpoint)
	web := c.CreateService(testbed.DualStack("web"))
	c.SetEndpoints(web, c.Pods[:2]...)
	proxy := c.StartProxy(testbed.ProxyUser)
	c.Served(web, c.Pods[:2]...)
	return c, web, proxy
}

// becomes makes one change in the API server and waits until it is seen.
func (c *cluster) becomes(s testbed.Service, pods ...*netlab.Host) {
	c.T.Helper()
	c.SetSlice(s, model.IPv4, pods...)
	testbed.Eventually(c.T, func() error { return testbed.Balanced(c.Client, "tcp", s.Frontend(model.IPv4), pods) })
}

// missed listens in place of a stopped API server until a client dials it.
func (c *cluster) missed() {
	c.T.Helper()
	l, err := c.Node.Listen("tcp", testbed.APIAddress)
	if err != nil {
		c.T.Fatal(err)
	}
	defer l.Close()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(testbed.Patience)); err != nil {
		c.T.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		c.T.Fatal(err)
	}
	conn.Close()
}

func TestRestartOfAPIServer(t *testing.T) {
	c, web, _ := newServing(t)
	flows, before := c.OpenFlows(web), c.Generation()

	c.Server.Kill()
	c.missed()
	c.Commits(before, 0, "the API server is away")
	c.Served(web, c.Pods[:2]...)
	testbed.GoOn(t, flows, "the API server is away")

	c.StartServer()
	c.becomes(web, c.Pods[1:]...)
	testbed.GoOn(t, testbed.Only("tcp", flows), "the API server is back")
	c.Commits(before, 1, "the API server is back, and one change")
}

func TestRestartOfProxy(t *testing.T) {
	c, web, proxy := newServing(t)
	connections, before := testbed.Only("tcp", c.OpenFlows(web)), c.Generation()
	takeover := c.Takeover()
	proxy.Stop(t)
	proxy = c.StartProxy(testbed.ProxyUser)
	c.becomes(web, c.Pods[1:]...)
	c.Commits(before, takeover+1, "the proxy is back, and one change")

	proxy.Stop(t)
	c.SetSlice(web, model.IPv4, c.Pods[:2]...)
	c.Commits(before, takeover+1, "a change while there is no proxy")
	proxy = c.StartProxy(testbed.ProxyUser)
	c.becomes(web, c.Pods[:2]...)
	c.Commits(before, 2*takeover+2, "a change while there was no proxy")
	testbed.GoOn(t, connections, "the proxy is back")
	proxy.Stop(t)
}

// A proxy that starts while the API server is away leaves the rules alone.
func TestStartWithoutAPIServer(t *testing.T) {
	c, web, proxy := newServing(t)
	before, takeover := c.Generation(), c.Takeover()
	proxy.Stop(t)
	c.Server.Kill()
	c.StartProxy(testbed.ProxyUser)
	c.missed()
	c.TookOver(before, takeover, "the API server is away")
	c.Served(web, c.Pods[:2]...)

	c.StartServer()
	c.becomes(web, c.Pods[1:]...)
	c.Commits(before, takeover+1, "the API server is back, and one change")
}

// Nothing is committed before all kinds of objects are read: the objects of a
// missing kind are unknown.
func TestNothingBeforeSync(t *testing.T) {
	for _, missing := range []string{"services", "endpointslices"} {
		t.Run(missing, func(t *testing.T) {
			c, web, proxy := newServing(t)
			before, takeover := c.Generation(), c.Takeover()
			proxy.Stop(t)
			const user = "newcomer"
			c.grantAllBut(user, missing)
			proxy = c.StartProxy(user)
			testbed.Eventually(t, func() error {
				if log := proxy.Log.String(); !strings.Contains(log, missing) {
					return fmt.Errorf("the proxy does not log that it may not read %s", missing)
				}
				return nil
			})
			c.TookOver(before, takeover, "before the sync")
			c.Served(web, c.Pods[:2]...)

			c.grant(user, missing)
			c.becomes(web, c.Pods[1:]...)
			c.Commits(before, takeover+1, "after the sync, and one change")
		})
	}
}

// The right to read ServiceCIDRs is optional (14.3).
func TestWithoutServiceCIDRs(t *testing.T) {
	const user = "newcomer"
	c := newCluster(t, 2)
	web := c.CreateService(testbed.DualStack("web"))
	c.SetEndpoints(web, c.Pods...)
	c.grantAllBut(user, "servicecidrs")
	proxy := c.StartProxy(user)
	c.Served(web, c.Pods...)
	if log := proxy.Log.String(); !strings.Contains(log, "ServiceCIDR") {
		t.Errorf("the proxy does not log anything about ServiceCIDRs:\n%s", log)
	}
	c.SetEndpoints(web, c.Pods[1])
	c.Served(web, c.Pods[1])
}

// grantAllBut lets a user read what a proxy reads, except one kind of objects.
func (c *cluster) grantAllBut(user, missing string) {
	c.T.Helper()
	for _, resource := range []string{"services", "endpointslices", "nodes", "servicecidrs"} {
		if resource != missing {
			c.grant(user, resource)
		}
	}
}

// grant lets a user read a kind of objects.
func (c *cluster) grant(user, resource string) {
	c.T.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user + "-" + resource},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"*"}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"}},
		},
	}
	if _, err := c.API.RbacV1().ClusterRoles().Create(c.T.Context(), role, metav1.CreateOptions{}); err != nil {
		c.T.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := c.API.RbacV1().ClusterRoleBindings().Create(c.T.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.T.Fatal(err)
	}
}
