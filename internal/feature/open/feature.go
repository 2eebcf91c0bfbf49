// Package open shows what fills connection tracking: its entries by Service, client and state.
package open

import (
	"fmt"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/internal/conntrack"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/machine"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind]. Nothing is read until the page is asked for.
func (Kind) New(n *feature.Node) feature.Feature { return &view{node: n} }

const (
	// period is the least time between two readings, which all readers share.
	period = time.Second
	// rest is the pause after a reading in multiples of its duration: readings use at most a tenth of a CPU.
	rest = 10
	// keep is how long a reading stays in memory.
	keep = time.Minute
)

// view is the feature.
type view struct {
	node *feature.Node

	mu   sync.Mutex
	last *conntrack.Table // nil: none is in memory
	next time.Time        // when the table may be read again
}

// Page implements [feature.Viewer].
func (*view) Page() (path, about string) {
	return "/open", "what fills connection tracking: entries by Service, client and state, as JSON (nftproxy top --open)"
}

// View implements [feature.Viewer].
func (v *view) View(q feature.Query) (fmt.Stringer, error) {
	table, err := v.read(func() (*conntrack.Table, error) { return conntrack.ReadTable(v.node.Serving().PortOf) })
	if err != nil {
		return nil, err
	}
	use, err := machine.ReadConntrack()
	if err != nil {
		return nil, err
	}
	return newDocument(table, use.Max, q, v.node.Serving().Words()), nil
}

// read returns the last reading, or makes another one if that is too old.
func (v *view) read(readTable func() (*conntrack.Table, error)) (*conntrack.Table, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	begin := time.Now()
	if v.last != nil && begin.Before(v.next) {
		return v.last, nil
	}
	table, err := readTable()
	if err != nil {
		return nil, err
	}
	if v.last == nil {
		time.AfterFunc(keep, v.forget)
	}
	v.last, v.next = table, time.Now().Add(max(period, rest*time.Since(begin)))
	return table, nil
}

func (v *view) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = nil
}
