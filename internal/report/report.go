// Package report reports what a node serves and whether its rules are up to date:
// a running daemon answers over HTTP; where none runs, the report is read from the
// kernel's tables.
package report

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// ServiceCount is the number of new connections to the frontends of one kind
// and family of a service port.
type ServiceCount struct {
	Port        model.PortName
	Family      model.Family
	Kind        model.Kind
	Connections uint64
}

// report is a report that is being made.
type report struct {
	api.Status
	inUse []netip.AddrPort // endpoints of all frontends, if the report is from the kernel
}

// addresses yields the addresses of all endpoints that take connections, whatever the filter.
func (r *report) addresses(yield func(netip.Addr) bool) {
	for _, e := range r.inUse {
		if !yield(e.Addr()) {
			return
		}
	}
}
