package main

import (
	"fmt"
	"strings"
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
)

// Baselines.
const (
	plain      = "ClusterIP"
	plainLB    = "load balancer address"
	plainNode  = "NodePort"
	sourceHash = "scheduler source-hash"

	// again is the first baseline once more: its ratio is the error of all others.
	again = "ClusterIP, once more"
)

var (
	sticky = settings{spec: "sessionAffinity: ClientIP"}
	ranges = settings{spec: "loadBalancerSourceRanges: [10.128.0.0/9, 192.0.2.0/24, 'fd00:10:128::/48']"}
	hashed = settings{annotations: "nftproxy.dev/scheduler: source-hash"}
)

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

	{name: "session affinity of others", beside: plain, others: sticky},
	{name: "session affinity", beside: plain, own: sticky},

	{name: "load balancer source ranges of others", beside: plainLB, dial: loadBalancer, others: ranges},
	{name: "load balancer source ranges", beside: plainLB, dial: loadBalancer, own: ranges},

	{name: "allowed clients", beside: plain, own: settings{annotations: "nftproxy.dev/source-ranges: '10.128.0.0/9, 192.0.2.0/24, fd00:10:128::/48'"}},
	{name: "denied clients of others", beside: plain, others: denied(10)},
	{name: "denied clients", beside: plain, own: denied(10)},
	{name: "ten thousand denied clients", beside: plain, own: denied(10_000)},
	{name: "denied ranges of twenty lengths", beside: plain, own: deniedRanges(20)},

	{name: sourceHash, beside: plain, own: hashed},
}
