package model

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// ZoneRule is how the zone floor of a Service applies to the clients of a node (3.61 to
// 3.63). It is immutable, and depends on the endpoints of the moment alone.
type ZoneRule struct {
	Floor uint32 // percent of all ready endpoints
	Zone  string // of the node; empty: unknown
	// Ignored is why the floor does not count; empty: it counts.
	Ignored string
	// Own are the ready endpoints of the zone, and All those of all zones and of none.
	Own, All ZonePart
	byHints  bool   // topology hints say which endpoints are the zone's
	own      uint32 // factors of the weights in the zone and elsewhere, below the floor
	others   uint32
}

// ZonePart is a number of endpoints, and the sum of their weights.
type ZonePart struct {
	Endpoints int
	Weight    uint64
}

func (p *ZonePart) add(e Endpoint) {
	p.Endpoints++
	p.Weight += uint64(e.HostWeight())
}

// newZoneRule returns the rule for a selection that is complete otherwise.
func newZoneRule(floor uint32, s *Selection, endpoints []Endpoint) *ZoneRule {
	r := &ZoneRule{Floor: floor, Zone: s.node.Zone, byHints: s.byZone}
	switch {
	case s.policy == PolicyLocal:
		r.Ignored = "policy Local"
	case !s.ready:
		r.Ignored = "no endpoint is ready"
	case s.byNode:
		r.Ignored = "topology hints are for this node"
	case r.Zone == "":
		r.Ignored = "the zone of this node is not known"
	}
	s.zone = r
	if !r.Counts() {
		return r
	}
	for _, e := range endpoints {
		if s.excludesHost(e.Host) != Chosen {
			continue
		}
		r.All.add(e)
		if s.inZone(e.Host) {
			r.Own.add(e)
		}
	}
	if r.Spills() {
		own, all := r.Own.Weight, r.All.Weight
		r.own, r.others = approximateRatio(100*(all-own), uint64(floor)*all-100*own)
	}
	return r
}

// inZone reports whether a host is the zone's of this node: as topology hints say, or
// because it is there.
func (s *Selection) inZone(h *Host) bool {
	p := h.Place.get()
	if s.zone.byHints {
		return p.forZones.hasName(s.node.Zone)
	}
	return p.zone == s.node.Zone || p.node != "" && p.node == s.node.Name
}

// Zone returns the rule of the zone floor, or nil if the Service has none.
func (s Selection) Zone() *ZoneRule { return s.zone }

// Counts reports whether the floor decides. There may be no rule.
func (r *ZoneRule) Counts() bool { return r != nil && r.Ignored == "" }

// Spills reports whether the zone is below the floor: other zones get connections.
func (r *ZoneRule) Spills() bool { return 100*r.Own.Weight < uint64(r.Floor)*r.All.Weight }

// Elsewhere returns the part of the connections that other zones get, from 0 to 1. The floor
// has to count.
func (r *ZoneRule) Elsewhere() float64 {
	if !r.Spills() {
		return 0
	}
	own, others := float64(r.Own.Weight)*float64(r.own), float64(r.All.Weight-r.Own.Weight)*float64(r.others)
	return others / (own + others)
}

// setZoneShares gives endpoints their shares below the floor. The fraction of the connections
// that stays in the zone is the share of its endpoints divided by the floor, so that none of
// them gets more than at the floor; the rest goes to the others (3.62). Each part is spread
// by weight.
func (s Selection) setZoneShares(chosen []Endpoint) []Endpoint {
	if !s.zone.Counts() || !s.zone.Spills() || s.zone.Own.Endpoints == 0 {
		return chosen
	}
	out := slices.Clone(chosen)
	for i := range out {
		factor := s.zone.others
		if s.inZone(out[i].Host) {
			factor = s.zone.own
		}
		out[i].Share = uint32(out[i].HostWeight()) * factor
	}
	return out
}

// ZoneShares is the largest factor of a weight. It keeps the number of slots small, and the
// part of the connections that leaves a zone within a hundredth of what is meant as long as
// the factors differ by less.
const ZoneShares = 100

// approximateRatio returns two numbers up to [ZoneShares] that have about the same ratio as a and b,
// of which a is not the smaller one, and b not 0. It has no fractions: all nodes have to agree.
func approximateRatio(a, b uint64) (p, q uint32) {
	p, q = ZoneShares, 1
	if a >= ZoneShares*b {
		return p, q
	}
	distance := uint64(math.MaxUint64)
	for n := uint64(1); n <= ZoneShares; n++ {
		m := (a*n + b/2) / b
		if m > ZoneShares {
			break
		}
		d := max(m*b, a*n) - min(m*b, a*n) // of m/n from a/b, in units of 1/(n*b)
		if distance == math.MaxUint64 || d*uint64(q) < distance*n {
			p, q, distance = uint32(m), uint32(n), d
		}
	}
	return p, q
}

// Effect says where the connections of this node's clients go, for example "zone a alone".
func (r *ZoneRule) Effect() string {
	switch {
	case r == nil:
		return "none"
	case !r.Counts():
		return "not used: " + r.Ignored
	case !r.Spills():
		return "zone " + r.Zone + " alone"
	case r.Own.Endpoints == 0:
		return "all connections go to other zones"
	}
	return formatPercent(r.Elsewhere()) + " of the connections go to other zones"
}

// String returns the effect and its cause, for example "zone a alone: 3 of 9 ready
// endpoints (33.3 %), floor 25 %".
func (r *ZoneRule) String() string {
	if !r.Counts() {
		return fmt.Sprintf("%s; floor %d %%", r.Effect(), r.Floor)
	}
	share := ""
	if r.Own.Endpoints > 0 {
		by := ""
		if r.Own.Weight*uint64(r.All.Endpoints) != r.All.Weight*uint64(r.Own.Endpoints) {
			by = " by weight"
		}
		share = fmt.Sprintf(" (%s%s)", formatPercent(float64(r.Own.Weight)/float64(r.All.Weight)), by)
	}
	text := fmt.Sprintf("%d of %d ready endpoints%s", r.Own.Endpoints, r.All.Endpoints, share)
	if r.Spills() {
		return fmt.Sprintf("%s: zone %s has %s, below the floor of %d %%", r.Effect(), r.Zone, text, r.Floor)
	}
	return fmt.Sprintf("%s: %s, floor %d %%", r.Effect(), text, r.Floor)
}

// formatPercent returns for example "33.3 %" for a third, and "25 %" for a quarter.
func formatPercent(part float64) string {
	return strconv.FormatFloat(math.Round(1000*part)/10, 'f', -1, 64) + " %"
}
