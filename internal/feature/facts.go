package feature

import "github.com/nftproxy/nftproxy/internal/model"

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
