package e2e

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

// New connections follow the objects of the API server.
func TestBalance(t *testing.T) {
	c := newCluster(t, 3)
	c.StartProxy(testbed.ProxyUser)
	web, api := c.CreateService(testbed.DualStack("web")), c.CreateService(testbed.DualStack("api"))
	c.SetEndpoints(web, c.Pods...)
	c.SetEndpoints(api, c.Pods[0])
	for _, pods := range [][]*netlab.Host{c.Pods, c.Pods[:1], c.Pods[1:], nil, c.Pods[:2], c.Pods} {
		c.SetEndpoints(web, pods...)
		if len(pods) > 0 {
			c.Served(web, pods...)
		} else {
			c.Refused(web)
		}
	}
	c.Served(api, c.Pods[0])
}

// A Service that is deleted and created again has its endpoints immediately if
// its EndpointSlices have stayed.
func TestDeleteAndRecreate(t *testing.T) {
	c := newCluster(t, 2)
	c.StartProxy(testbed.ProxyUser)
	web := c.CreateService(testbed.DualStack("web"))
	c.SetEndpoints(web, c.Pods...)
	c.Served(web, c.Pods...)

	c.DeleteService(web)
	c.Silent(web)
	again := c.CreateService(testbed.DualStack("web", web.ClusterIPs...))
	c.Served(web, c.Pods...)

	c.DeleteService(again)
	c.Silent(web)
	other := c.CreateService(testbed.DualStack("other", web.ClusterIPs...))
	c.Refused(web)
	c.SetEndpoints(other, c.Pods[1])
	c.Served(web, c.Pods[1])
}

// The API server is itself behind a service, whose endpoints it writes: its
// own address on a node.
func TestAPIServerThroughItsService(t *testing.T) {
	c := newCluster(t, 1)
	c.StartProxy(testbed.ProxyUser)
	for _, from := range []*netlab.Host{c.Pods[0], c.Client, c.Node} {
		config := rest.CopyConfig(c.Config)
		config.Host, config.Dial = "https://"+testbed.FirstServiceIP, from.DialContext
		api := c.ClientFor(config)
		testbed.Eventually(t, func() error { return testbed.Ready(t, api) })
	}
}
