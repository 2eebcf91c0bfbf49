package test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// earlyClient is one that sends before the address that it dials is served.
type earlyClient struct {
	from    *netlab.Host
	network string
	to      netip.AddrPort
	refused bool // wants a refusal in the end; otherwise an answer
	udp     *netlab.Flow
	result  error // of TCP, when all have ended
}

// earlyClients returns a client of each kind for each frontend of a Service that will be served, of
// one without endpoints, and for another port of its ClusterIP. TCP to a NodePort is left out: the
// node itself refuses it at once.
func (c *cluster) earlyClients(served, empty service) (all []*earlyClient) {
	for _, family := range model.Families {
		for _, from := range []*netlab.Host{c.Client, c.Node, c.Pods[1]} {
			for _, network := range []string{"tcp", "udp"} {
				for _, s := range []service{served, empty} {
					for kind, to := range s.frontends(c.Node, family) {
						if network == "udp" || kind != "NodePort" {
							all = append(all, &earlyClient{from: from, network: network, to: to, refused: s.Name == empty.Name})
						}
					}
				}
				other := netip.AddrPortFrom(served.clusterIP(family).Addr(), servicePort+1)
				all = append(all, &earlyClient{from: from, network: network, to: other, refused: true})
			}
		}
	}
	return all
}

// begin makes all clients send for the first time, until the node has their entries.
func (c *cluster) begin(all []*earlyClient) (ended *sync.WaitGroup) {
	c.t.Helper()
	ended = new(sync.WaitGroup)
	var first sync.WaitGroup
	for _, e := range all {
		if e.network == "udp" {
			f, err := e.from.Open("udp", e.to, silence)
			if err != nil {
				c.t.Fatal(err)
			}
			c.t.Cleanup(func() { f.Close() })
			e.udp = f
			first.Go(func() {
				if got, err := f.Ask(); err == nil {
					c.t.Errorf("%s answers at %s", got.Name, e.to)
				}
			})
			continue
		}
		ended.Go(func() {
			f, err := e.from.Open("tcp", e.to, 2*patience)
			if err == nil {
				_, err = f.Ask()
				err = errors.Join(err, f.Close())
			}
			e.result = err
		})
	}
	first.Wait()
	eventually(c.t, func() error {
		known := make(map[netip.AddrPort]int)
		err := c.Node.Do(func() error {
			for _, f := range model.Families {
				if err := (conntrack.Netlink{}).List(f, model.TCP, func(f conntrack.Flow) { known[f.Dialled]++ }); err != nil {
					return err
				}
			}
			return nil
		})
		for _, e := range all {
			if e.network == "tcp" && known[e.to] < 3 {
				err = errors.Join(err, fmt.Errorf("%d clients have dialled %s, want 3", known[e.to], e.to))
			}
		}
		return err
	})
	return ended
}

// finish waits until all clients have what they want.
func (c *cluster) finish(all []*earlyClient, ended *sync.WaitGroup) {
	c.t.Helper()
	wanted := func(e *earlyClient, err error) error {
		if e.refused != errors.Is(err, syscall.ECONNREFUSED) || !e.refused && err != nil {
			return fmt.Errorf("%s to %s %s: %v, want a refusal: %v", e.from.Name, e.network, e.to, err, e.refused)
		}
		return nil
	}
	for _, e := range all {
		if e.network == "udp" {
			eventually(c.t, func() error {
				_, err := e.udp.Ask()
				return wanted(e, err)
			})
		}
	}
	ended.Wait()
	for _, e := range all {
		if e.network == "tcp" {
			if err := wanted(e, e.result); err != nil {
				c.t.Error(err)
			}
		}
	}
}

// writeUnreserved writes the input file, with a service CIDR that has no ClusterIPs: packets to unused
// ones are dropped otherwise, and leave no entry.
func (c *cluster) writeUnreserved(services ...service) {
	c.t.Helper()
	text := strings.Replace(renderInput(c.t, c.Node, services), `"10.96.0.0/16", "fd00:10:96::/112"`, `"10.200.0.0/16", "fd00:10:200::/112"`, 1)
	if err := os.WriteFile(c.file+".new", []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		c.t.Fatal(err)
	}
}

// 9.41, 9.42: clients that have sent before their frontend came are served or refused with the next
// packet: while nftproxy runs, and when it starts on a node that tracked their connections
// before there was a nat chain.
func TestClientsBeforeTheirFrontend(t *testing.T) {
	for _, when := range []string{"while it runs", "before it runs"} {
		t.Run(when, func(t *testing.T) {
			c := newCluster(t, 2)
			served, empty := service{Name: "web", N: 1, Pods: c.Pods[:1]}, service{Name: "empty", N: 2}
			all := c.earlyClients(served, empty)
			if when == "while it runs" {
				other := service{Name: "other", N: 3, Pods: c.Pods[:1]}
				c.writeUnreserved(other)
				c.start()
				c.answersFrom(other, "pod-0")
				ended := c.begin(all)
				c.writeUnreserved(other, served, empty)
				c.finish(all, ended)
				return
			}
			c.nftLoad("table inet firewall { chain forward { type filter hook forward priority 0; ct state new accept; }; }\n")
			ended := c.begin(all)
			c.writeUnreserved(served, empty)
			c.start()
			c.finish(all, ended)
		})
	}
}
