// Package model holds what a node service proxy knows and decides, free of
// Kubernetes types and of nftables: services, endpoint slices and the node go
// in as a [Snapshot]; [Resolve] answers, for every frontend that a client can
// dial, whether a new connection is forwarded, rejected or dropped, and to
// which endpoints.
//
// All values are immutable once built and every function is pure, so that a
// dry run, a diff and the daemon decide alike.
//
// Statement numbers such as 3.7 in comments refer to docs/behaviour.md.
package model
