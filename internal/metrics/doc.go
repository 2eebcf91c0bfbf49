// Package metrics exports what the process does to monitoring. It keeps the series
// that dashboards and alerts for kube-proxy ask for, by the same names, adds
// its own, which begin with nftproxy_, and answers the paths of the metrics
// server. docs/metrics.md lists all of them.
//
// Numbers such as 11.7 refer to docs/behaviour.md.
package metrics
