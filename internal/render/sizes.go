package render

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// SetSize is the number of elements of a set or map.
type SetSize struct {
	Family   model.Family
	Set      string
	Elements int
}

func (t *table) countClasses(leads string) (n int) {
	if leads == nft.LanesMap {
		n = len(fixedLanes(t.observe))
	}
	for _, l := range t.lanes {
		if l.use.hasClass() && l.use.leadingMap() == leads {
			n++
		}
	}
	return n
}

// Resized returns a number that is another one after each change of a size.
func (s *State) Resized() uint64 { return s.resized }

// Sizes returns the sizes of all sets and maps that are not dynamic, in no order.
func (s *State) Sizes() []SetSize {
	var out []SetSize
	for f, t := range s.tables {
		if !t.exists {
			continue
		}
		for _, set := range t.declareSets(s.base, t.usedOptions()) {
			n := t.sizes[set.Name]
			switch {
			case set.Dynamic:
				continue
			case slices.Contains(nft.LaneMaps, set.Name):
				n = t.countClasses(set.Name)
			case set.Name == nft.ServiceCIDRsSet:
				n = len(rangeElements(s.base.ServiceCIDRs, f))
			case set.Name == nft.LoadBalancerCIDRsSet:
				n = len(rangeElements(s.base.UnlinkedCIDRs, f))
			case set.Name == nft.NodeAddressesSet:
				n = len(addressElements(s.base.NodePortAddresses, nil, f))
			}
			out = append(out, SetSize{f, set.Name, n})
		}
	}
	return out
}
