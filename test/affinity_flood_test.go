package test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// inSync waits until the kernel has the rules of the input file.
func (c *cluster) inSync() {
	c.t.Helper()
	eventually(c.t, func() error {
		var out bytes.Buffer
		diff := c.command("diff")
		diff.Stdout, diff.Stderr = &out, &out
		if err := c.Node.Run(diff); err != nil {
			return fmt.Errorf("diff: %w\n%s", err, &out)
		}
		return nil
	})
}

// boundTo counts the clients that are bound to an endpoint.
func (c *cluster) boundTo(h *netlab.Host) int {
	c.t.Helper()
	n := 0
	for _, f := range model.Families {
		keyword := map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[f]
		listing := c.nft("--stateless", "list", "map", keyword, "nftproxy", "affinity")
		n += strings.Count(listing, fmt.Sprintf(": %s . %d", h.Address(f), echoPort))
	}
	return n
}

// startFlooded starts the daemon for a Service and others, and floods the first one
// from a pod. First datagrams may be lost.
func (c *cluster) startFlooded(from *netlab.Host, s service, others ...service) (*daemon, *flood) {
	c.t.Helper()
	c.write(append([]service{s}, others...)...)
	d := c.start()
	c.inSync()
	f := c.startFlood(from, s)
	f.patience.Store(int64(silence))
	return d, f
}

// leaves checks, during the flood, that an endpoint gets no new flow and that
// no client stays bound to it. The change that removes it is in effect. Flows
// known to connection tracking continue until the daemon has deleted their
// entries. On a busy machine the flood takes a while to come round, as it waits
// for first datagrams that are dropped.
func (f *flood) leaves(c *cluster, h *netlab.Host) {
	c.t.Helper()
	netlab.Eventually(c.t, 4*patience, func() error {
		before := f.by(h)
		f.wait(c.t, 2*floodClients)
		if n := f.by(h) - before; n > 0 {
			return fmt.Errorf("%s got %d flows after it was removed", h.Name, n)
		}
		if n := c.boundTo(h); n > 0 {
			return fmt.Errorf("%d clients are bound to %s after it was removed", n, h.Name)
		}
		return nil
	})
}

// 5.6: endpoints leave while thousands of clients of both families are bound and
// others are being bound. No new flow reaches an endpoint that has left, no
// client stays bound to it, and "diff" finds nothing to do.
func TestAffinityUnderFlood(t *testing.T) {
	c := newCluster(t, 5)
	web := service{Name: "web", N: 1, Pods: c.Pods[:4], Affinity: long}
	d, f := c.startFlooded(c.Pods[4], web)
	f.wait(t, 2*2*floodClients) // all are bound
	bound := 0                  // clients of endpoints that leave
	for round := range 3 {
		gone := c.Pods[round]
		web.Pods = nil
		for _, p := range c.Pods[:4] {
			if p != gone {
				web.Pods = append(web.Pods, p)
			}
		}
		bound += c.boundTo(gone)
		c.replace(web)
		c.inSync()
		f.leaves(c, gone)
		web.Pods = c.Pods[:4]
		c.replace(web)
		c.inSync()
	}
	opened, lost := f.stop()
	fmt.Fprintf(t.Output(), "%d flows, %d first datagrams lost\n", opened, lost)
	// A client that comes with a binding to an endpoint that has just left loses
	// its first datagram, unless the sweep was faster: each at most once.
	if lost > int64(bound) {
		t.Errorf("%d of %d flows were lost, more than the %d bindings to endpoints that left", lost, opened, bound)
	}
	d.stop(t)
}

// 5.6: a Service takes over the address of another one. Clients that were bound
// there get the endpoints of the new one.
func TestAffinityOfFormerService(t *testing.T) {
	c := newCluster(t, 3)
	former := service{Name: "former", N: 1, Pods: c.Pods[:1], Affinity: long}
	latter := service{Name: "latter", N: 1, Pods: c.Pods[1:2], Affinity: long}
	d, f := c.startFlooded(c.Pods[2], former)
	f.wait(t, 2*2*floodClients)
	c.replace(latter)
	c.inSync()
	f.leaves(c, c.Pods[0])
	c.replace(former)
	c.inSync()
	f.leaves(c, c.Pods[1])
	d.stop(t)
}

// Bindings expire all the time while endpoints change and the daemon is
// restarted: no transaction fails because of it.
func TestAffinityThatExpires(t *testing.T) {
	c := newCluster(t, 5)
	web := service{Name: "web", N: 1, Pods: c.Pods[:4], Affinity: 1}
	other := service{Name: "other", N: 2, Pods: c.Pods[:1]}
	d, f := c.startFlooded(c.Pods[4], web, other)
	f.wait(t, floodClients)
	for round := range 12 {
		web.Pods, other.Pods = c.Pods[:2+round%3], c.Pods[round%4:round%4+1]
		if round%4 == 3 {
			d.stop(t)
			c.replace(web, other)
			d = c.start()
		} else {
			c.replace(web, other)
		}
		c.inSync()
		c.answersFrom(other, other.Pods[0].Name)
		f.wait(t, floodClients/4)
		for _, word := range []string{"level=ERROR", "refuses", "a change failed"} {
			if strings.Contains(d.log.String(), word) {
				t.Fatalf("round %d: the log has %q:\n%s", round, word, d.log.String())
			}
		}
	}
	d.stop(t)
}

// 5.8: if more clients are bound than the new map size allows, the program
// starts and keeps as many as fit.
func TestAffinitySizeShrinks(t *testing.T) {
	c := newCluster(t, 3)
	web := service{Name: "web", N: 1, Pods: c.Pods[:2], Affinity: long}
	c.write(web)
	d := c.start()
	c.inSync()
	f := c.startFlood(c.Pods[2], web)
	f.wait(t, 2*floodClients)
	d.stop(t)
	c.flags = append(c.flags, "--affinity-size", "1000")
	d = c.start()
	c.inSync()
	f.wait(t, floodClients)
	if log := d.log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "refuse") {
		t.Errorf("the log of the daemon:\n%s", log)
	}
	if n := strings.Count(c.nft("--stateless", "list", "map", "ip", "nftproxy", "affinity"), " . 8080"); n == 0 || n > 1000 {
		t.Errorf("%d clients are bound, want 1 to 1000", n)
	}
	f.check(t)
	d.stop(t)
}
