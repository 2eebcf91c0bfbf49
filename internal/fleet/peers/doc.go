// Package peers makes the Services and pods of a connectivity test in a cluster, and removes them.
// The pods run nftproxy itself: they answer connections, and open some when they are asked to.
package peers
