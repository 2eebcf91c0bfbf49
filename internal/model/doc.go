// Package model makes the decisions of a node's service proxy, without Kubernetes
// types: from a [Snapshot] of Services, EndpointSlices and the Node, [Resolve]
// decides for every frontend whether a new connection is forwarded, rejected or
// dropped, and to which endpoints.
//
// The decisions about one Service are pure functions: [RouteService], [Choose] and
// the functions that they call. [Router] keeps their results for all Services and
// follows changes; dry runs and the daemon both use it. Objects and routes are
// immutable and shared.
//
// Statement numbers such as 3.7 in comments refer to docs/behaviour.md.
package model
