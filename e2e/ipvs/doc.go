// Package ipvs tests the way from kube-proxy's mode ipvs to nftproxy and back, as
// docs/ipvs.md describes it, under load. The node is a virtual machine with a kernel that
// has IPVS, emulated in software; the API server runs outside of it.
package ipvs
