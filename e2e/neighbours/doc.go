// Package neighbours runs other programs that change the network of a node beside
// nftproxy: CNI plugins, firewalls, container engines, load balancers. Each test
// reports what works, which docs/compatibility.md lists.
package neighbours
