package feature

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Known is what decides over rules beside the objects and settings: what features of a process know.
type Known struct {
	Failing  []Failing
	Starting []Starting
	Resolved []Resolved
	Drained  drain.List
	Changes  drain.Changes
	// Addresses lists the addresses of the machine by interface, sorted; nil: the rules are for another one.
	Addresses func() ([]model.InterfaceAddress, error)
}

// Planned is what a feature makes of a snapshot.
type Planned struct {
	*model.Snapshot
	Endpoints []string // whose state is known, for example "10.1.1.2:80 of default/web"
	State     string   // "failing a health check"
	Warning   string   // about what is not known, for the log; empty: nothing
	Names     []string // that it is about; nil: none
}

// Resolved has the addresses that a name has as a server of a Service.
type Resolved struct {
	Service   model.ServiceName
	Name      string
	Addresses []model.NamedAddress
}

// Starting is an endpoint of a Service that starts slowly.
type Starting struct {
	Service model.ServiceName
	model.Starting
}

// Failing is an endpoint of a Service that fails its check.
type Failing struct {
	Service  model.ServiceName
	Endpoint netip.AddrPort // as it is checked
	Protocol string
	// Check identifies how it is checked: another Service with the same one has the same
	// result. Versions of nftproxy need not agree on it.
	Check string
}

// Announced is an address that Balances ask for on an interface.
type Announced struct {
	Address   netip.Addr
	Interface string
	Usable    bool   // the interface is up and has the address
	Reason    string // why it is not usable
}
