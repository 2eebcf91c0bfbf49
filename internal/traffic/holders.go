package traffic

import (
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	// searchPause is the time between two searches: each may look at all Services.
	searchPause = time.Second
	// holderAge is how long a result is used.
	holderAge  = time.Minute
	maxHolders = 1024
)

// holders remembers which Services have which addresses. It is not safe for concurrent use.
type holders struct {
	node     Node
	known    map[netip.Addr]held
	searched time.Time
}

type held struct {
	name model.ServiceName // zero: no Service
	at   time.Time
}

// of returns the Service that has an address; false: none, or the last search was just before.
func (h *holders) of(a netip.Addr, now time.Time) (model.ServiceName, bool) {
	if found, ok := h.known[a]; ok && now.Sub(found.at) < holderAge {
		return found.name, found.name.Name != ""
	}
	if now.Sub(h.searched) < searchPause {
		return model.ServiceName{}, false
	}
	h.searched = now
	name, ok := h.node.Holder(a)
	if h.known == nil || len(h.known) >= maxHolders {
		h.known = make(map[netip.Addr]held)
	}
	h.known[a] = held{name, now}
	return name, ok
}
