// Package descriptors divides the file descriptors that the process may have among its
// parts, so that none of them keeps the others from working: metrics, status and netlink
// need a few at any time.
//
//	a half          health checks over the network
//	an eighth       programs of health checks, four for each
//	three of 32     connections of the health server, the metrics server, and to health checks of Services
//	the rest        netlink, files, listeners: at least 32
//
// Connections of relayed Balances, six for each, have a half of what the others cannot use. With
// NodePorts on localhost, which take three quarters, health checks have an eighth of their part.
package descriptors

import (
	"github.com/nftproxy/nftproxy/internal/budget"
)

// own is what the process has open when it is idle, and some more.
const own = 32

// Checks returns how many health checks may run at the same time: over the network, and as
// programs.
func Checks(besideLocalhost bool) (network, programs int) {
	return checkLimits(processLimit(), besideLocalhost)
}

func checkLimits(limit int, besideLocalhost bool) (network, programs int) {
	share := max(limit-own, 0) / 2
	if besideLocalhost {
		share /= 8
	}
	return max(1, min(budget.Checks, share)), max(1, min(budget.CheckPrograms, share/16))
}

// forwarded is how many descriptors a connection has that is relayed, or to a NodePort on localhost: two sockets, and a pipe for each
// direction, through which the kernel moves the data.
const forwarded = 6

// Relay returns how many connections to relayed Balances there may be at the same time.
func Relay(besideLocalhost bool) int { return relayLimit(processLimit(), besideLocalhost) }

func relayLimit(limit int, besideLocalhost bool) int {
	network, programs := checkLimits(limit, besideLocalhost)
	left := limit - own - network - 4*programs - 3*connectionLimit(limit, limit)
	if besideLocalhost {
		left -= limit/2 + limit/4
	}
	return max(1, min(budget.RelayConnections, left/2/forwarded))
}

const (
	// localhostConnections is the number of concurrent connections to NodePorts on localhost, and
	// localhostOfPort through one, so that one Service cannot use up all of them.
	localhostConnections = 4096
	localhostOfPort      = 1024
)

// LocalhostLimits bound what NodePorts on localhost use: a half for listeners, and a quarter for connections.
type LocalhostLimits struct{ Listeners, Connections, OfPort int }

// Localhost returns the limits of NodePorts on localhost.
func Localhost() LocalhostLimits { return localhostLimits(processLimit()) }

func localhostLimits(limit int) LocalhostLimits {
	connections := max(1, min(localhostConnections, limit/4/forwarded))
	return LocalhostLimits{limit / 2, connections, min(localhostOfPort, max(1, connections/4))}
}

// Connections returns how many connections a server may have that has room for most.
func Connections(most int) int { return connectionLimit(processLimit(), most) }

func connectionLimit(limit, most int) int { return max(1, min(most, limit/32)) }
