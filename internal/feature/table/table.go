// Package table lists the features of the process on a node.
package table

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/condition"
	"github.com/nftproxy/nftproxy/internal/feature/fastpath"
	"github.com/nftproxy/nftproxy/internal/feature/localhost"
	"github.com/nftproxy/nftproxy/internal/feature/memory"
	"github.com/nftproxy/nftproxy/internal/feature/observe"
	"github.com/nftproxy/nftproxy/internal/feature/open"
	"github.com/nftproxy/nftproxy/internal/feature/relay"
	"github.com/nftproxy/nftproxy/internal/feature/table/editors"
	"github.com/nftproxy/nftproxy/internal/feature/takeover"
	"github.com/nftproxy/nftproxy/internal/feature/vitals"
)

// Rows are all features, in the order in which they are made, observe syncs and report problems.
var Rows = slices.Concat(editors.Rows, []feature.Row{
	{Name: "fast path", Kind: fastpath.Kind{}},
	{Name: "localhost", Kind: localhost.Kind{}},
	{Name: "vitals", Kind: vitals.Kind{}},
	{Name: "relay", Kind: relay.Kind{}},
	{Name: "observe", Kind: observe.Kind{}},
	{Name: "open", Kind: open.Kind{}},
	{Name: "takeover", Kind: takeover.Kind{}},
	{Name: "memory", Kind: memory.Kind{}},
	{Name: "condition", Kind: condition.Kind{}},
})
