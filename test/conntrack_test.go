package test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
)

// 9.1, 9.2, 9.3: the daemon moves UDP clients off an endpoint that is gone, and
// no others. A restart moves no client, but finds endpoints that have ended in
// the meantime.
func TestDaemonMovesFlows(t *testing.T) {
	c := newCluster(t, 3)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	d := c.start()
	c.answersFrom(web, "pod-0")
	var flows []flow
	for _, to := range []func(model.Family) netip.AddrPort{
		web.clusterIP, web.loadBalancerIP, web.externalIP,
		func(f model.Family) netip.AddrPort { return web.nodePort(c.Node, f) },
	} {
		flows = append(flows, openFlows(t, c.Client, to)...)
	}
	moved := func(when, to string) {
		t.Helper()
		for _, f := range flows {
			if f.network == "tcp" {
				f.goesOn(t, when)
				continue
			}
			eventually(t, func() error {
				if got, err := f.Ask(); err != nil || got.Name != to {
					return fmt.Errorf("%s: %s: %+v, %v, want an answer of %s", when, f.family, got, err, to)
				}
				return nil
			})
		}
	}
	web.Pods = c.Pods[1:2]
	c.write(web)
	moved("the endpoint is replaced", "pod-1")

	d.stop(t)
	web.Pods = c.Pods[1:]
	c.write(web)
	d = c.start()
	eventually(t, func() error { // both take part
		for range 3 {
			if got, err := c.Client.Ask("udp", web.clusterIP(model.IPv4), silence); err == nil && got.Name == "pod-2" {
				return nil
			}
		}
		return fmt.Errorf("pod-2 does not answer")
	})
	moved("a restart", "pod-1")

	d.stop(t)
	web.Pods = c.Pods[2:]
	c.write(web)
	d = c.start()
	moved("a restart, and the endpoint is gone", "pod-2")
	d.stop(t)
}
