// Package metrics exports Prometheus metrics of the process: the series that
// dashboards and alerts for kube-proxy use, under the same names, and its own, with
// the name prefix nftproxy_. docs/metrics.md lists all of them.
//
// Numbers such as 11.7 refer to docs/behaviour.md.
package metrics
