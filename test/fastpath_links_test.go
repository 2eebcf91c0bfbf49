//go:build guest

package test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// 9.30, 9.32, 9.36: clients and endpoints to which tunnels, VLANs and bonds lead, with the fast path, and beside flow
// tables of others: endpoints are replaced, a client is denied, the Service is removed.
func TestFlowtablesLinks(t *testing.T) {
	for _, name := range slices.Concat([]string{"nftproxy"}, slices.Sorted(maps.Keys(flowtables))) {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			behind := c.behind(netlab.Kinds...)
			if rules, another := flowtables[name]; another {
				c.offload(rules)
			} else {
				c.flags = append([]string{"--fast-path=all"}, c.flags...)
				c.nftLoad(forwarded)
			}
			web, api := service{Name: "web", N: 1, Pods: c.Pods[:1]}, service{Name: "api", N: 2, Pods: behind[:1]}
			c.write(web, api)
			c.startServing(api)
			flows := openFlowsFor(t, c.Client, func(f model.Family) netip.AddrPort { return web.nodePort(c.Node, f) }, answerTime)
			for _, from := range append(behind, c.Client) {
				flows = append(flows, openFlowsFor(t, from, web.clusterIP, answerTime)...)
			}
			c.areFast(t, flows)
			for _, pod := range append(behind, c.Pods[1]) {
				web.Pods = []*netlab.Host{pod}
				c.write(web, api)
				c.goTo(t, flows, web)
			}
			c.failsOver(t, flows)
			var denied []flow
			for _, from := range append(behind, c.Client) {
				denied = append(denied, openFlowsFor(t, from, api.clusterIP, answerTime)...)
			}
			c.areFast(t, denied)
			api.Annotations = listed(nil, addressesOf(append(behind, c.Client)...))
			c.write(web, api)
			c.cut(t, denied, "clients are denied")
			c.removed(t, flows)
		})
	}
}

// behind adds pods to which links of these kinds lead, with servers.
func (c *cluster) behind(kinds ...string) (pods []*netlab.Host) {
	c.t.Helper()
	for _, kind := range kinds {
		pod, err := c.AddBehind(kind)
		if err != nil {
			c.t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	c.echo(pods...)
	return pods
}

// failsOver ends the device of each bond that packets take: they take the other one, and go past the rules again.
func (c *cluster) failsOver(t *testing.T, flows []flow) {
	t.Helper()
	for _, kind := range netlab.Kinds {
		cables := netlab.Cables(kind)
		if len(cables) < 2 {
			continue
		}
		err := c.Node.Do(func() error {
			l, err := netlink.LinkByName(cables[0])
			if err != nil {
				return err
			}
			return netlink.LinkSetDown(l)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		for _, f := range flows {
			f.Within(silence)
			if _, err := f.Ask(); err != nil {
				return fmt.Errorf("%s %s: a device of the bond has ended: %w", f.network, f.family, err)
			}
		}
		return nil
	})
	for _, f := range flows {
		f.Within(answerTime)
	}
	c.areFast(t, flows)
}
