package main

import (
	"fmt"
	"strings"
	"time"
)

// feature is a row: the settings of nftproxy and of a Service that is measured, and what
// the Services beside it have.
type feature struct {
	name   string
	beside string // the row that the costs are compared with; empty: it is a baseline

	flags  []string // of "nftproxy apply"
	own    settings // of the Service that is measured
	others settings // of every tenth other Service
	dial   dial
	port   uint16 // that is dialled at an address of the Service; 0: its own
	daemon bool   // nftproxy has to run while connections are made
	ended  bool   // the server ends the connection, and then the client; else the client resets it
	logged bool   // something reads what the rules log, whose time does not count
	first  bool   // without the rules that log how connections end
	// later is how long nftproxy works on connections after their ends; it also counts.
	later time.Duration
}

// settings are fields of a Service in YAML's flow style.
type settings struct {
	annotations string
	spec        string
}

// dial is which frontend clients dial.
type dial int

const (
	clusterIP dial = iota
	loadBalancer
	nodePort
	ownNodePort // from the node itself
	localhost   // the same port at a loopback address
)

// Baselines.
const (
	plain      = "ClusterIP"
	plainLB    = "load balancer address"
	plainNode  = "NodePort"
	plainOwn   = "NodePort from the node"
	plainEnded = "ClusterIP, ended by both sides"
	sourceHash = "scheduler source-hash"

	// again is the first baseline once more: its ratio is the error of all others.
	again = "ClusterIP once more"
)

var (
	sticky = settings{spec: "sessionAffinity: ClientIP"}
	ranges = settings{spec: "loadBalancerSourceRanges: [10.128.0.0/9, 192.0.2.0/24, 'fd00:10:128::/48']"}
	hashed = annotated("scheduler: source-hash")

	limited = settings{annotations: "nftproxy.dev/max-connections: '1000', nftproxy.dev/max-connections-per-client: '10', nftproxy.dev/connection-rate: 100/second, nftproxy.dev/connection-rate-per-client: 10/second"}
)

// annotated returns a Service with an annotation of ours.
func annotated(text string) settings { return settings{annotations: "nftproxy.dev/" + text} }

// denied returns a list of clients without those that measure.
func denied(n int) settings {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("11.%d.%d.%d,fd11::%x:%x", i*7%256, i/256, i%256, i*7%256, i)
	}
	return settings{annotations: "nftproxy.dev/denied-sources: '" + strings.Join(list, ",") + "'"}
}

// deniedRanges returns ranges of n lengths.
func deniedRanges(n int) settings {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%d.128.0.0/%d,fd%02x::/%d", 11+i, 32-i, i, 64-i)
	}
	return settings{annotations: "nftproxy.dev/denied-sources: '" + strings.Join(list, ",") + "'"}
}

// features are the rows, baselines before what is compared with them. A feature has a row
// for what it costs Services that do not use it, and one for those that do.
var features = []feature{
	{name: plain},
	{name: again, beside: plain},
	{name: plainLB, dial: loadBalancer},
	{name: plainNode, dial: nodePort},
	{name: plainOwn, dial: ownNodePort},
	{name: plainEnded, ended: true},

	{name: "session affinity of others", beside: plain, others: sticky},
	{name: "session affinity", beside: plain, own: sticky},

	{name: "load balancer source ranges of others", beside: plainLB, dial: loadBalancer, others: ranges},
	{name: "load balancer source ranges", beside: plainLB, dial: loadBalancer, own: ranges},

	{name: "allowed clients", beside: plain, own: settings{annotations: "nftproxy.dev/source-ranges: '10.128.0.0/9, 192.0.2.0/24, fd00:10:128::/48'"}},
	{name: "denied clients of others", beside: plain, others: denied(10)},
	{name: "denied clients", beside: plain, own: denied(10)},
	{name: "ten thousand denied clients", beside: plain, own: denied(10_000)},
	{name: "denied ranges of twenty lengths", beside: plain, own: deniedRanges(20)},

	{name: "pings are answered", beside: plain, flags: []string{"--answer-ping"}},
	{name: "pings are answered beside NodePorts", beside: plainNode, dial: nodePort, flags: []string{"--answer-ping"}},
	{name: "refusals counted and logged", beside: plain, flags: []string{"--observe=refusals"}},
	{name: "samples logged", beside: plainEnded, ended: true, logged: true, flags: []string{"--observe=failures"}},
	{name: "connections logged", beside: plainEnded, ended: true, logged: true, flags: []string{"--observe=connections"}},
	{name: "first packets logged", beside: plainEnded, ended: true, logged: true, first: true, flags: []string{"--observe=connections"}},
	{name: "connections followed", beside: plainEnded, ended: true, daemon: true, later: time.Second, flags: []string{"--observe=connections"}},
	{name: "ranges of load balancers", beside: plainLB, dial: loadBalancer, flags: []string{"--load-balancer-cidrs=198.18.0.0/15,2001:db8:18::/48"}},

	{name: sourceHash, beside: plain, own: hashed},
	{name: "scheduler maglev of others", beside: plain, others: annotated("scheduler: maglev")},
	{name: "scheduler maglev", beside: plain, own: annotated("scheduler: maglev")},
	{name: "scheduler maglev-port", beside: plain, own: annotated("scheduler: maglev-port")},

	{name: "ranges of ports of others", beside: plain, others: annotated("ports: 8000-9000/tcp")},
	{name: "exact port beside a range", beside: plain, own: annotated("ports: 8000-9000/tcp")},
	{name: "port of a range", beside: plain, own: annotated("ports: 8000-9000/tcp"), port: serverPort},

	{name: "limits of others", beside: plain, others: limited},
	{name: "most connections", beside: plain, own: annotated("max-connections: '50000'")},
	{name: "most connections per client", beside: plain, own: annotated("max-connections-per-client: '50000'")},
	{name: "rate of connections", beside: plain, own: annotated("connection-rate: 1000000/second")},
	{name: "rate of connections per client", beside: plain, own: annotated("connection-rate-per-client: 1000000/second")},

	{name: "NodePort on localhost", beside: plainOwn, dial: localhost, daemon: true, flags: []string{"--nodeport-addresses", "primary,localhost"}},
}
