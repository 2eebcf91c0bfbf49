// Package model holds what a node service proxy knows and decides, free of
// Kubernetes types: Services, EndpointSlices and the Node go in as a [Snapshot];
// [Resolve] answers, for every frontend that a client can dial, whether a new
// connection is forwarded, rejected or dropped, and to which endpoints.
//
// The decisions about one Service are pure functions: [RouteService], [Choose] and
// what they call. [Router] keeps their results for all Services and follows
// changes; a dry run and the daemon use the same one. Objects and routes are
// immutable once they are built, and shared.
//
// Statement numbers such as 3.7 in comments refer to docs/behaviour.md.
package model
