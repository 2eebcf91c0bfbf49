// Package table lists the features of the process on a node.
package table

import (
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/names"
	"github.com/nftproxy/nftproxy/internal/feature/slowstart"
)

// Rows are all features, in the order in which they observe syncs.
var Rows = []feature.Row{
	{Name: "names", Order: 20, Kind: names.Kind{}},
	{Name: "slow start", Order: 60, Kind: slowstart.Kind{}}, // the last editor: it sees which endpoints the others leave
}
