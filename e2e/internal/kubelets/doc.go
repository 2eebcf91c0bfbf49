// Package kubelets runs a Kubernetes cluster on one machine: real kubelets,
// containerd and runc, CNI plugins, CoreDNS, scheduler and controllers. Each node
// has network, mounts, host name and process ids of its own; the control plane has
// a network whose bridge joins them:
//
//	control plane ── br0 ──┬── n1 ── pods 10.244.4.0/22, fd00:10:244:1::/64
//	172.30.0.1             ├── n2 ── pods 10.244.8.0/22, fd00:10:244:2::/64
//	fd00:30::1             └── n3    172.30.0.13, fd00:30::13
//
// All programs are compiled from Go modules or are packages of Debian, and the
// images are made of those, under the names that Kubernetes' own tests use. Nothing
// is pulled from a registry.
//
// Namespaces are anonymous. The kernel ends every process of the cluster with the
// process that made it; [Cluster.Close] removes the cgroups and files as well.
//
// It needs root, Linux, and the packages of Debian that "make conformance" installs.
package kubelets
