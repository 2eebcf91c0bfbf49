// Package table lists the features of the process on a node.
package table

import (
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/changes"
	"github.com/nftproxy/nftproxy/internal/feature/condition"
	"github.com/nftproxy/nftproxy/internal/feature/drains"
	"github.com/nftproxy/nftproxy/internal/feature/fastpath"
	"github.com/nftproxy/nftproxy/internal/feature/localhost"
	"github.com/nftproxy/nftproxy/internal/feature/names"
	"github.com/nftproxy/nftproxy/internal/feature/observe"
	"github.com/nftproxy/nftproxy/internal/feature/probe"
	"github.com/nftproxy/nftproxy/internal/feature/relay"
	"github.com/nftproxy/nftproxy/internal/feature/slowstart"
	"github.com/nftproxy/nftproxy/internal/feature/takeover"
	"github.com/nftproxy/nftproxy/internal/feature/vitals"
	"github.com/nftproxy/nftproxy/internal/feature/wildcard"
)

// Rows are all features, in the order in which they observe syncs and report problems.
var Rows = []feature.Row{
	{Name: "drains", Order: 50, Kind: drains.Kind{}},
	{Name: "runtime changes", Order: 30, Kind: changes.Kind{}}, // it finds the drains; health checks see the servers that it adds
	{Name: "fast path", Kind: fastpath.Kind{}},
	{Name: "names", Order: 20, Kind: names.Kind{}},       // those after it see the servers that it adds
	{Name: "wildcard", Order: 10, Kind: wildcard.Kind{}}, // also names need addresses to listen on
	{Name: "localhost", Kind: localhost.Kind{}},
	{Name: "vitals", Kind: vitals.Kind{}},
	{Name: "relay", Kind: relay.Kind{}},
	{Name: "health checks", Order: 40, Kind: probe.Kind{}},
	{Name: "slow start", Order: 60, Kind: slowstart.Kind{}}, // it sees which endpoints the others leave
	{Name: "observe", Kind: observe.Kind{}},
	{Name: "takeover", Kind: takeover.Kind{}},
	{Name: "condition", Kind: condition.Kind{}},
}
