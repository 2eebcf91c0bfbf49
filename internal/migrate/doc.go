// Package migrate prepares a cluster for the move from kube-proxy to nftproxy, node
// by node: it keeps the pods of kube-proxy's DaemonSet off the nodes with a label,
// and lets them return.
package migrate
