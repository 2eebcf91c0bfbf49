package test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// 3.20: the first packet of a connection decides; all others, in both
// directions, meet no rule and no chain of ours.
func TestEstablishedConnectionsMeetNoRule(t *testing.T) {
	const rounds = 50
	c := newCluster(t, 2)
	c.echo(c.Node)
	// With affinity, a connection meets more of our rules than any other does,
	// and on its way to the node itself it comes through the chain "bind-input".
	web := service{Name: "web", N: 1, Pods: []*netlab.Host{c.Pods[1], c.Node}, Affinity: long}
	c.apply(web)

	var flows []flow
	first := c.trace("new", func() {
		for _, from := range []*netlab.Host{c.Client, c.Node, c.Pods[0]} {
			flows = append(flows, openFlows(t, from, web.clusterIP)...)
			flows = append(flows, openFlows(t, from, func(f model.Family) netip.AddrPort { return web.nodePort(c.Node, f) })...)
		}
	})
	for _, family := range []byte{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		for _, chain := range []string{"prerouting", "output", "dispatch", "bind-input", "postrouting", "remember"} {
			if ours := (place{family, "nftproxy", chain}); first[ours] == 0 {
				t.Errorf("no first packet came to %v", ours)
			}
		}
	}

	packets := 0
	for where, n := range c.trace("established", func() {
		for range rounds {
			for _, f := range flows {
				f.goesOn(t, "established")
			}
		}
	}) {
		if where.table != watchTable {
			t.Errorf("established connections came to %v %d times", where, n)
			continue
		}
		packets += n
	}
	if want := 2 * rounds * len(flows); packets < want { // question and answer
		t.Errorf("%d packets were watched, want %d at least", packets, want)
	}
}

// watchTable is a table of the test.
const watchTable = "watch"

// watch makes the kernel report every rule that a packet meets, and every base
// chain that it passes to the end, as soon as connection tracking knows the
// state of its connection, and before any proxy may see it. The datagrams that
// meet the chain "end" are the test's own.
const watch = `
table inet ` + watchTable + ` {
	chain end { type filter hook output priority raw; udp dport 9 meta nftrace set 1; }
	chain prerouting { type filter hook prerouting priority mangle; ct state %[1]s meta nftrace set 1 accept; }
	chain output { type filter hook output priority mangle; ct state %[1]s meta nftrace set 1 accept; }
}`

// place is where a packet was.
type place struct {
	family       byte // of the table
	table, chain string
}

func (p place) String() string {
	return fmt.Sprintf("chain %s of table %s, family %d", p.chain, p.table, p.family)
}

// trace returns where packets of connections in a state were while f ran, and
// how often.
func (c *cluster) trace(state string, f func()) map[place]int {
	c.t.Helper()
	events := c.traceEvents()
	defer events.Close()
	c.nftLoad(fmt.Sprintf(watch, state))
	f()
	last, err := c.Node.DialContext(context.Background(), "udp", netip.AddrPortFrom(c.Node.IPv4, 9).String())
	if err != nil {
		c.t.Fatal(err)
	}
	defer last.Close()
	if _, err := last.Write([]byte("?\n")); err != nil {
		c.t.Fatal(err)
	}
	if err := events.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
	places := map[place]int{}
	for {
		messages, err := events.Receive()
		if err != nil {
			c.t.Fatal(err)
		}
		for _, m := range messages {
			p := c.decodeTrace(m)
			if p.chain == "end" {
				c.nft("delete", "table", "inet", watchTable)
				return places
			}
			places[p]++
		}
	}
}

// traceEvents returns the kernel's events about packets on the node. Its buffer
// holds the events of all packets; if one gets lost, receiving fails.
func (c *cluster) traceEvents() *netlink.Conn {
	c.t.Helper()
	var events *netlink.Conn
	err := c.Node.Do(func() (err error) {
		events, err = netlink.Dial(unix.NETLINK_NETFILTER, nil)
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := events.SetReadBuffer(64 << 20); err != nil {
		c.t.Fatal(err)
	}
	if err := events.JoinGroup(unix.NFNLGRP_NFTRACE); err != nil {
		c.t.Fatal(err)
	}
	return events
}

func (c *cluster) decodeTrace(m netlink.Message) place {
	c.t.Helper()
	if m.Header.Type != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_TRACE {
		c.t.Fatalf("message of type %#x", m.Header.Type)
	}
	const header = 4 // struct nfgenmsg, which begins with the family
	attributes, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		c.t.Fatal(err)
	}
	p := place{family: m.Data[0]}
	for attributes.Next() {
		switch attributes.Type() {
		case unix.NFTA_TRACE_TABLE:
			p.table = attributes.String()
		case unix.NFTA_TRACE_CHAIN:
			p.chain = attributes.String()
		}
	}
	if err := attributes.Err(); err != nil {
		c.t.Fatal(err)
	}
	return p
}
