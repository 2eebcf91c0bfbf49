package feature

import (
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Known is what decides over rules beside the objects and settings: what features of a process know.
type Known struct {
	Failing  []model.FailingCheck
	Starting []model.StartingEndpoint
	Resolved []model.ResolvedName
	Drained  drain.List
	Changes  drain.Changes
	Machine  *Addresses // nil: the rules are for another one
}

// Addresses are the addresses of a machine by interface, sorted, or why they cannot be listed.
type Addresses struct {
	All []model.InterfaceAddress
	Err error
}

// SetMachine sets the addresses of the machine that the rules are for, or why they cannot be listed.
func (k *Known) SetMachine(all []model.InterfaceAddress, err error) { k.Machine = &Addresses{all, err} }

// Planned is what a feature makes of a snapshot.
type Planned struct {
	*model.Snapshot
	Endpoints []string // whose state is known, for example "10.1.1.2:80 of default/web"
	State     string   // "failing a health check"
	Warning   string   // about what is not known, for the log; empty: nothing
	Names     []string // that it is about; nil: none
}

// AddressAction is what makes an address of an interface right.
type AddressAction string

// The actions.
const (
	NoAction      AddressAction = ""
	AddAddress    AddressAction = "add"
	RemoveAddress AddressAction = "remove"
)

// AddressChange is an address that is to be added to an interface, or removed from it.
type AddressChange struct {
	Action    AddressAction `json:"action"`
	Address   netip.Addr    `json:"address"`
	Interface string        `json:"interface"`
}

// String returns for example "+ address 203.0.113.10 on eth0".
func (c AddressChange) String() string {
	sign := map[AddressAction]string{AddAddress: "+", RemoveAddress: "-"}[c.Action]
	return fmt.Sprintf("%s address %s on %s", sign, c.Address, c.Interface)
}
