// Package nodes tests nftproxy on a cluster of real kubelets, beside kube-proxy
// where both can do it: what a rolling update, an upgrade, a restart or a migration
// costs clients that make requests without pause. The tests share a cluster and
// run one after the other.
package nodes
