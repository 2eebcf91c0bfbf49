package e2e

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/netlab"
	"k8s.io/client-go/rest"
)

// New connections follow the objects of the API server.
func TestBalance(t *testing.T) {
	c := newCluster(t, 3)
	c.startProxy(proxyUser)
	web, api := c.createService(dualStack("web")), c.createService(dualStack("api"))
	c.setEndpoints(web, c.Pods...)
	c.setEndpoints(api, c.Pods[0])
	for _, pods := range [][]*netlab.Host{c.Pods, c.Pods[:1], c.Pods[1:], nil, c.Pods[:2], c.Pods} {
		c.setEndpoints(web, pods...)
		if len(pods) > 0 {
			c.served(web, pods...)
		} else {
			c.refused(web)
		}
	}
	c.served(api, c.Pods[0])
}

// A Service that is deleted and created again has its endpoints at once if its
// EndpointSlices have stayed.
func TestDeleteAndRecreate(t *testing.T) {
	c := newCluster(t, 2)
	c.startProxy(proxyUser)
	web := c.createService(dualStack("web"))
	c.setEndpoints(web, c.Pods...)
	c.served(web, c.Pods...)

	c.deleteService(web)
	c.silent(web)
	again := c.createService(dualStack("web", web.clusterIPs...))
	c.served(web, c.Pods...)

	c.deleteService(again)
	c.silent(web)
	other := c.createService(dualStack("other", web.clusterIPs...))
	c.refused(web)
	c.setEndpoints(other, c.Pods[1])
	c.served(web, c.Pods[1])
}

// The API server is itself behind a service, whose endpoints it writes: its
// own address on a node.
func TestAPIServerThroughItsService(t *testing.T) {
	c := newCluster(t, 1)
	c.startProxy(proxyUser)
	for _, from := range []*netlab.Host{c.Pods[0], c.Client, c.Node} {
		config := rest.CopyConfig(c.config)
		config.Host, config.Dial = "https://"+firstServiceIP, from.DialContext
		api := c.client(config)
		eventually(t, func() error { return ready(t, api) })
	}
}
