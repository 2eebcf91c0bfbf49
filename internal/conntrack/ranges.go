package conntrack

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// portRange is a range of ports of an address.
type portRange struct {
	first, last uint16
	kept
}

func (r portRange) compare(o portRange) int {
	return cmp.Or(cmp.Compare(r.first, o.first), cmp.Compare(r.last, o.last))
}

// portRanges are sorted. They do not overlap, except while changes are recorded.
type portRanges []portRange

func (rs portRanges) findRange(port uint16) *portRange {
	i, _ := slices.BinarySearchFunc(rs, port, func(r portRange, port uint16) int { return cmp.Compare(r.last, port) })
	if i < len(rs) && rs[i].first <= port {
		return &rs[i]
	}
	return nil
}

func (rs portRanges) join(r portRange) portRanges {
	rs = slices.DeleteFunc(rs, func(o portRange) bool {
		overlaps := o.first <= r.last && r.first <= o.last
		if overlaps {
			r.first, r.last = min(r.first, o.first), max(r.last, o.last)
		}
		return overlaps
	})
	i, _ := slices.BinarySearchFunc(rs, r, portRange.compare)
	return slices.Insert(rs, i, r)
}

func (fs *frontends) setRange(f model.Frontend, now kept) {
	all, r := fs.ranges[f.Address], portRange{f.Port, f.Last, now}
	i, known := slices.BinarySearchFunc(all, r, portRange.compare)
	switch {
	case !known:
		fs.ranges[f.Address] = slices.Insert(all, i, r)
	case all[i].equal(now):
		return
	default:
		all[i] = r
	}
	fs.markChanged()
}

// removeRange forgets a range, like remove.
func (fs *frontends) removeRange(f model.Frontend, gone bool) {
	all, r := fs.ranges[f.Address], portRange{first: f.Port, last: f.Last}
	i, known := slices.BinarySearchFunc(all, r, portRange.compare)
	if !known {
		return
	}
	r.differs = all[i].differs
	if fs.ranges[f.Address] = slices.Delete(all, i, i+1); len(all) == 1 {
		delete(fs.ranges, f.Address)
	}
	if fs.protocol == model.TCP && (!gone || r.differs == fs.ending) {
		return // no connection ends, so that all former ranges of TCP differ, or none
	}
	fs.goneRanges[f.Address] = fs.goneRanges[f.Address].join(r)
	fs.markChanged()
}
