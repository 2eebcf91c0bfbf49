// Package dial opens the connections of package conntest on this machine, by sockets of its own: [Run] tries
// cases, and connection tracking names the endpoint of each connection, so that any server can be tested.
// [Room] is a client apart from the machine, in a network namespace, and [Peer] one in a pod.
package dial
