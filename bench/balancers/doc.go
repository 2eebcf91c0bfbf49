// Command balancers measures nftproxy beside other TCP load balancers, on the
// real kernel and in one run:
//
//	balancers [-only NAME,...] [-measure traffic,services,failover] [-runs N] [-o FILE.json]
//
// A client, a balancer and five servers are network namespaces of one machine,
// linked by veth pairs. The balancers take turns, so that other load on the
// machine affects all of them. Each turn has namespaces of its own.
//
// Servers, clients and probes are processes of this program, so that processor
// time is known by process. It needs root, and the programs to compare.
package main
