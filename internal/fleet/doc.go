// Package fleet asks the nftproxy of every node of a cluster through the API server, with the
// access of the operator who runs a command, and judges their answers together.
//
// The documents of a node are on a loopback address, so that the API server reaches them only
// as kubectl port-forward does: through the kubelet. Nothing listens on the network for that.
package fleet
