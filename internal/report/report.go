// Package report makes the documents of api: what a node serves and whether its rules are up
// to date, how a Service is served, live data, and drained endpoints. Where no daemon runs,
// status and description are read from the tables of the kernel.
package report

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/api"
)

// report is a report that is being made.
type report struct {
	api.Status
	of Words // nil: the ones of Kubernetes
	// mistakes are the mistakes of the source, each with its file, if it names them.
	mistakes []string
	inUse    []netip.AddrPort // endpoints of all frontends, if the report is from the kernel
}

// addresses yields the addresses of all endpoints that take connections, with any filter.
func (r *report) addresses(yield func(netip.Addr) bool) {
	for _, e := range r.inUse {
		if !yield(e.Addr()) {
			return
		}
	}
}
