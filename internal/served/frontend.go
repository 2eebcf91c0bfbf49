package served

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Frontend says what a node does with new connections to a frontend.
type Frontend struct {
	model.Frontend
	Port model.PortName // the service port
	Kind model.Kind
	// Inside is for connections from pods and the node itself, Outside for others.
	Inside, Outside Decision
	// InternalPolicy is the policy of a ClusterIP, and Cluster for other kinds.
	InternalPolicy model.Policy
	// ExternalPolicy is Local if Outside depends on the endpoints of this node only.
	ExternalPolicy model.Policy
	Scheduler      model.Scheduler // never DefaultScheduler, unless it is unknown
	// Affinity is how long a client stays on its endpoint after its last new connection;
	// zero: it is not bound.
	Affinity time.Duration
	// Together reports that it stays with one server for all ports of a Balance.
	Together     bool
	Masquerading model.Masquerading
	// Relayed reports that nftproxy run relays the connections; the endpoints are its servers.
	Relayed bool
	Sources *model.Sources // nil: all clients may connect
	Limits  model.Limits
	Unknown Facts // that the origin does not have
}

// Decision is the verdict on connections, with endpoints if they are forwarded.
type Decision struct {
	Verdict   model.Verdict
	Endpoints []Endpoint // sorted by address; none unless the verdict is Forward
}

// Endpoint is an endpoint of a decision. Of new connections it gets its slots of all
// slots, except of clients that are bound already.
type Endpoint struct {
	Address netip.AddrPort
	Slots   int // at least 1
}

// Facts are fields of a frontend that its origin does not tell, as a set of bits.
type Facts uint8

const (
	// Name: nft limits comments of elements to 128 bytes, so a longer name of a service
	// port is cut.
	Name Facts = 1 << iota
	// InternalPolicy: rules show the endpoints, and not which others there are.
	InternalPolicy
	// ExternalPolicy: without any endpoint, the rules of both policies are the same.
	ExternalPolicy
	// Scheduler: with less than two endpoints there is no choice.
	Scheduler
	// Affinity: without endpoints there is nothing to bind a client to.
	Affinity
)

// Has reports whether all these facts are in the set.
func (f Facts) Has(all Facts) bool { return f&all == all }

// Without returns a copy of the frontend in which some facts are unknown.
func (f *Frontend) Without(unknown Facts) *Frontend {
	out := *f
	out.Unknown |= unknown
	if unknown.Has(Name) {
		out.Port = model.PortName{Protocol: f.Port.Protocol}
	}
	if unknown.Has(InternalPolicy) {
		out.InternalPolicy = model.PolicyCluster
	}
	if unknown.Has(ExternalPolicy) {
		out.ExternalPolicy = model.PolicyCluster
	}
	if unknown.Has(Scheduler) {
		out.Scheduler = model.DefaultScheduler
	}
	if unknown.Has(Affinity) {
		out.Affinity, out.Together = 0, false
	}
	return &out
}

// Slots returns the number of slots that connections choose from.
func (d Decision) Slots() (n int) {
	for _, e := range d.Endpoints {
		n += e.Slots
	}
	return n
}

// Of returns the slots of an endpoint; zero: it gets no connections.
func (d Decision) Of(address netip.AddrPort) int {
	i, ok := slices.BinarySearchFunc(d.Endpoints, address, func(e Endpoint, a netip.AddrPort) int { return e.Address.Compare(a) })
	if !ok {
		return 0
	}
	return d.Endpoints[i].Slots
}

// TableSize returns the slots of the table of Maglev for pods and the node; zero: there
// is none.
func (f *Frontend) TableSize() int {
	if n := f.Inside.Slots(); f.Scheduler.IsMaglev() && n > 1 {
		return n
	}
	return 0
}

// ClientAddresses returns the setting of the Service for the addresses of clients, if it
// makes a difference for the frontend. By default, clients outside of the cluster are
// masqueraded unless the external policy is Local.
func (f *Frontend) ClientAddresses() model.ClientAddresses {
	masquerades := f.Kind != model.ClusterIP && f.ExternalPolicy == model.PolicyCluster // by default
	switch {
	case f.Unknown.Has(ExternalPolicy), f.Relayed:
		return model.DefaultClientAddresses
	case masquerades && f.Masquerading != model.MasqueradeAll:
		return model.KeepClientAddresses
	case !masquerades && f.Masquerading == model.MasqueradeAll:
		return model.MasqueradeClientAddresses
	}
	return model.DefaultClientAddresses
}

// Forwards reports whether any client gets an endpoint.
func (f *Frontend) Forwards() bool {
	return f.Inside.Verdict == model.Forward || f.Outside.Verdict == model.Forward
}
