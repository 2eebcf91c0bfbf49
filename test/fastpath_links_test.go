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
// tables of others: endpoints are replaced, clients are denied, Services are removed.
func TestFlowtablesLinks(t *testing.T) {
	for _, name := range slices.Concat([]string{"nftproxy"}, slices.Sorted(maps.Keys(flowtables))) {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			behind := c.behind(netlab.Kinds...)
			if rules, another := flowtables[name]; another {
				c.offload(rules)
			} else {
				c.flags = append([]string{"--fast-path=all"}, c.flags...)
				c.nftLoad(forwarded)
			}
			var webs []service // one for each kind of link to its client
			for i, pod := range behind {
				webs = append(webs, service{Name: "web-" + pod.Name, N: i + 1, Pods: c.Pods})
			}
			c.write(webs...)
			c.startServing(webs[len(webs)-1])
			flows := make([][]flow, len(behind))
			for i, from := range behind {
				flows[i] = c.openFastFrom(t, from, webs[i].clusterIP)
			}
			for i := range webs { // the next kind leads to the endpoint
				webs[i].Pods = []*netlab.Host{behind[(i+1)%len(behind)]}
			}
			c.write(webs...)
			var others []flow
			for i, web := range webs {
				c.goTo(t, flows[i], web)
				others = append(others, c.openFastFrom(t, c.Client, web.clusterIP)...)
			}
			others = append(others, c.openFastFrom(t, c.Client, func(f model.Family) netip.AddrPort { return webs[0].nodePort(c.Node, f) })...)
			c.failsOver(t, slices.Concat(append(flows, others)...))
			for i, pod := range behind {
				webs[i].Annotations = listed(nil, addressesOf(pod))
			}
			c.write(webs...)
			c.cut(t, slices.Concat(flows...), "clients are denied")
			c.removed(t, others)
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
