// Package editors lists the features that edit Services. They are for each operating system: a plan edits objects as the
// process does that it is for.
package editors

import (
	"cmp"
	"slices"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/changes"
	"github.com/nftproxy/nftproxy/internal/feature/drains"
	"github.com/nftproxy/nftproxy/internal/feature/names"
	"github.com/nftproxy/nftproxy/internal/feature/probe"
	"github.com/nftproxy/nftproxy/internal/feature/slowstart"
	"github.com/nftproxy/nftproxy/internal/feature/wildcard"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Rows are the features.
var Rows = []feature.Row{
	{Name: "drains", Order: 50, Kind: drains.Kind{}},
	{Name: "runtime changes", Order: 30, Kind: changes.Kind{}}, // it finds the drains; health checks see the servers that it adds
	{Name: "names", Order: 20, Kind: names.Kind{}},             // those after it see the servers that it adds
	{Name: "wildcard", Order: 10, Kind: wildcard.Kind{}},       // also names need addresses to listen on
	{Name: "health checks", Order: 40, Kind: probe.Kind{}},
	{Name: "slow start", Order: 60, Kind: slowstart.Kind{}}, // it sees which endpoints the others leave
}

// Plan returns a snapshot as a process has it that knows so much, and what features have to say about it.
func Plan(s *model.Snapshot, k *feature.Known) (*model.Snapshot, []feature.Planned, error) {
	var all []feature.Planned
	rows := slices.SortedFunc(slices.Values(Rows), func(a, b feature.Row) int { return cmp.Compare(a.Order, b.Order) })
	for _, row := range rows {
		p, err := row.Kind.(feature.Planner).Plan(s, k)
		if err != nil {
			return nil, nil, err
		}
		s, all = p.Snapshot, append(all, p)
	}
	return s, all, nil
}
