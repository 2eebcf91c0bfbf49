// Package traffic keeps what rules log about connections: the last events, and sums of the
// last minutes. Both have bounds that clients cannot reach past: an event is of constant size,
// and a million forged clients displace each other, not those that return.
package traffic

import (
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Event is a packet that the rules have refused, or a connection to an endpoint.
type Event struct {
	Number   uint64 // rises by one, from 1
	Time     time.Time
	Outcome  model.Outcome
	Reason   string // the name of a [model.Refusal] or [model.Course], or what another rule logs
	Protocol model.Protocol
	Client   netip.AddrPort // its port is 0 if it is not known
	Dialled  netip.AddrPort
	// Endpoint is where the packet would have gone, if that was decided; invalid: nowhere.
	Endpoint netip.AddrPort
	// Service is the one that has the dialled address and port; of an unknown port the one that
	// has the address. The zero value: there is none, or it is not known.
	Service model.PortName
	// Duration is how long the connection has lasted, from its first packet. Sent and Received
	// are bytes of the client and of the endpoint, if Counted.
	Duration       time.Duration
	Counted        bool
	Sent, Received uint64
}

const (
	// Capacity is how many events are kept: about 1 MB.
	Capacity = 4096
	// foreignReason is how many bytes of the text of another program's rule are kept.
	foreignReason = 64
)
