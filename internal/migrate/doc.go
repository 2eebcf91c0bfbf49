// Package migrate shows how far a cluster has moved from kube-proxy to nftproxy, node by node, and
// writes the commands of kubectl that keep the pods of kube-proxy's DaemonSet off the nodes with a
// label, and let them return. It changes nothing itself.
package migrate
