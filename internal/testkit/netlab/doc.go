// Package netlab builds a small cluster network out of network namespaces, for
// tests, benchmarks and the demo:
//
//	client ──────────── node ──┬── pod 0
//	192.0.2.2   192.0.2.1      ├── pod 1      10.128.0.2, .3, ...
//	2001:db8::2 2001:db8::1    └── pod 2      fd00:10:128::2, ::3, ...
//
// Pods of other nodes can be added, whose packets to services pass the node:
// 10.128.1.2 and fd00:10:128:1::2 onwards.
//
// The node forwards; client and pods send everything to it by default. Pods
// hang on routed veth pairs rather than on a bridge: a connection that is
// forwarded back to the pod it came from then needs neither hairpin ports nor
// br_netfilter.
//
// Namespaces are anonymous. The kernel removes them, and every process started
// in them, when the process that made them ends, however it ends.
//
// All of it needs Linux, and root or a user namespace; tests get one by [Run].
package netlab
