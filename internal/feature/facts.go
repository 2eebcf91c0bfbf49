package feature

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
)

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
