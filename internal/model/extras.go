package model

import (
	"net/netip"
	"time"
)

// Extras are settings beyond Kubernetes, from our annotations, in an object of its own
// because few Services have any. They must not be changed.
type Extras struct {
	// EndpointsFrom is the Service of a cluster whose endpoints a Service of files has
	// in addition to its own; nil: none.
	EndpointsFrom *ServiceName
	// Limits of new connections.
	Limits Limits
	// Ranges are ports in addition to the Service's own. No two of a protocol overlap,
	// and a single port is none of the Service's ports.
	Ranges []PortRange
	// Sources are the clients of all frontends of the Service, of both families (4.75).
	Sources *Sources
	// OnFailure decides over established TCP connections to an endpoint that fails or leaves.
	OnFailure OnFailure
	// Description is a line of text for people. It is printable.
	Description string
	// MaglevSize is one of [MaglevSizes]; zero: [DefaultMaglevSize].
	MaglevSize uint32
	// ZoneFloor is the share of all ready endpoints, in percent, from which on the endpoints
	// of a zone serve its clients alone (3.61); zero: none.
	ZoneFloor uint32
	// Observe reports that the connections of the Service are logged, if the node observes any.
	Observe bool
	// FastPath says whether established connections may go to a flow table of the kernel.
	FastPath FastPathUse
	// SlowStart is the time in which an endpoint gets its whole weight when it begins to take
	// connections while the Service is served; zero: it has its weight at once.
	SlowStart time.Duration
	// Starting are the endpoints that start slowly at present, sorted by address. A source has
	// none; what follows the time adds them.
	Starting []Starting
	// Relay says that a process of this machine relays the connections, of a Service of files.
	Relay RelayUse
	// RelayTimeout is the time without data after which a relayed connection is closed; zero:
	// [DefaultRelayTimeout].
	RelayTimeout time.Duration
	// Announce is the interface that has the addresses while a server is usable; empty: none.
	Announce string
	// MasqueradeFrom are the addresses of this machine with which connections that are masqueraded
	// for all clients go on, in turn, of a Service of files; none in a family: as all others.
	MasqueradeFrom []netip.Addr
	// Names are servers by names of DNS, of a Service of files.
	Names []NamedServer
	// Listeners stand for addresses of the machine, of a Service of files.
	Listeners []Listener
}

// OnFailure is the treatment of established TCP connections to an endpoint that fails its
// health check or leaves the Service.
type OnFailure uint8

const (
	DefaultOnFailure OnFailure = iota // as the configuration of the node says
	KeepOnFailure                     // they continue
	CloseOnFailure                    // their conntrack entries are deleted (9.28)
)

// OnFailureNames are the names of the values, from [KeepOnFailure] on.
var OnFailureNames = []string{"keep", "close"}

// String returns the name, or "default".
func (o OnFailure) String() string { return nameOf(o, KeepOnFailure, OnFailureNames, "default") }

// Closes reports whether the connections end on a node whose configuration closes them or not.
func (o OnFailure) Closes(node bool) bool {
	return o == CloseOnFailure || o == DefaultOnFailure && node
}

var noExtras Extras

// Extra returns the extras of a Service, never nil.
func (s *Service) Extra() *Extras {
	if s.Extras == nil {
		return &noExtras
	}
	return s.Extras
}
