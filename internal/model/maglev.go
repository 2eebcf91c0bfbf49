package model

import (
	"cmp"
	"fmt"
	"slices"
)

// MaglevSizes are the numbers of slots that a table of the scheduler maglev may have:
// primes, the same as in Cilium and IPVS.
var MaglevSizes = []uint32{251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071}

// DefaultMaglevSize is the number of slots for up to a hundred endpoints with shares that
// differ by a tenth, and for up to ten with shares that differ by a hundredth. Each slot
// is an element for each frontend.
const DefaultMaglevSize = 1021

// MaglevSize returns the number of slots for some endpoints of a Service. It does not
// depend on the number of endpoints, because most clients move when it changes, unless
// there are more endpoints than slots: each of them has at least one.
func (s *Service) MaglevSize(endpoints int) int {
	size := cmp.Or(s.Extra().MaglevSize, DefaultMaglevSize)
	if endpoints <= int(size) {
		return int(size)
	}
	i, _ := slices.BinarySearch(MaglevSizes, uint32(endpoints))
	return int(MaglevSizes[min(i, len(MaglevSizes)-1)])
}

const (
	evenSlots   = 100 // shares that differ by a hundredth (Maglev, section 3.4)
	unevenSlots = 10  // by a tenth
)

// MaglevNote says how uneven the shares of so many endpoints are in a table; empty: they
// differ by a hundredth at most.
func (s *Service) MaglevNote(endpoints int) string {
	size := s.MaglevSize(endpoints)
	if endpoints < 2 || size >= evenSlots*endpoints {
		return ""
	}
	least, most := size/endpoints, (size-1)/endpoints+1
	if least == most {
		return ""
	}
	return s.Words().Sprintf("%d slots for %d endpoints: shares differ by up to %.0f %%", size, endpoints, 100*float64(most-least)/float64(least))
}

// maglevNotices reports tables that are smaller than asked for, as fitted says, or in which
// the shares of endpoints differ by more than a tenth, in one notice. asked is the Service
// with all that it asks for.
func maglevNotices(s, asked *Service, routes []Route, byDefault Scheduler, fitted []Notice) []Notice {
	if !cmp.Or(s.Scheduler, byDefault).IsMaglev() {
		return fitted
	}
	most := 0
	for i := range routes {
		most = max(most, len(routes[i].Inside().Endpoints), len(routes[i].Outside().Endpoints))
	}
	note := s.MaglevNote(most)
	switch {
	case note == "" || s.MaglevSize(most) >= unevenSlots*most:
		return fitted
	case len(fitted) > 0:
		fitted[0].Message += "; " + note
		return fitted
	}
	return []Notice{newNotice(s.Object(), SmallTable, "%s", note+asked.adviseLargerTables(most))}
}

// adviseLargerTables says how the shares of so many endpoints become more even, if they can.
func (s *Service) adviseLargerTables(endpoints int) string {
	i, _ := slices.BinarySearch(MaglevSizes, uint32(evenSlots*endpoints))
	size := MaglevSizes[min(i, len(MaglevSizes)-1)]
	a := request{n: max(1, s.maglevTables()), size: int(size)}
	if fits := a.alone(); fits > s.MaglevSize(endpoints) {
		return "; " + s.askFor(fits)
	}
	return "" // it has the largest
}

func (s *Service) askFor(size int) string {
	if s.Balance {
		return fmt.Sprintf("set maglevTableSize: %d", size)
	}
	return fmt.Sprintf("annotate it with nftproxy.dev/maglev-table-size=%d", size)
}
