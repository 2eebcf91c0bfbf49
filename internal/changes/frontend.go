package changes

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

// frontend is what a node does with connections to a frontend.
type frontend struct {
	model.Frontend
	port     model.PortName
	kind     model.Kind
	inside   model.Verdict // for connections from pods and the node
	outside  model.Verdict // for others
	affinity time.Duration
	// scheduler is DefaultScheduler if it is unknown because there is no choice.
	scheduler     model.Scheduler
	maglevSize    int  // slots of the table for connections from pods and the node; zero: none
	local         bool // external policy Local
	localUnknown  bool // rules of a frontend that rejects do not show local
	known         bool // settings are known even if no client gets an endpoint
	masquerading  model.Masquerading
	internalLocal bool           // internal policy Local, if known
	sources       *model.Sources // nil: all clients may connect
	limits        model.Limits
	endpoints     []endpoint // for connections from anywhere, sorted
}

// endpoint is where connections go. The weight is that of the object, or the number of
// slots in rules.
type endpoint struct {
	address netip.AddrPort
	weight  int
}

// pair is a frontend before and after a change; nil: not served.
type pair struct{ before, after *frontend }

// shows reports whether settings that only a frontend with endpoints has in the rules are
// known.
func (f *frontend) shows() bool {
	return f.known || f.inside == model.Forward || f.outside == model.Forward
}

func sortEndpoints(endpoints []endpoint) []endpoint {
	slices.SortFunc(endpoints, func(a, b endpoint) int { return a.address.Compare(b.address) })
	return endpoints
}

// address is that of an endpoint.
type address = netip.AddrPort

// stateOf returns why an endpoint takes no new connections.
type stateOf func(model.PortName, address) state
