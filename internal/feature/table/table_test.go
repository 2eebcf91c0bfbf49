package table_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/feature/table"
)

// TestOrders: each feature that edits Services has a place of its own among them, and plans edit as it does; no other has one.
func TestOrders(t *testing.T) {
	at, names := make(map[int]string), make(map[string]bool)
	for _, row := range table.Rows {
		_, plans := row.Kind.(feature.Planner)
		if plans != (row.Order != 0) {
			t.Errorf("%s: order %d, edits snapshots of plans: %v", row.Name, row.Order, plans)
		}
		if other := at[row.Order]; row.Order != 0 && other != "" {
			t.Errorf("%s and %s have the order %d", row.Name, other, row.Order)
		}
		if at[row.Order] = row.Name; names[row.Name] {
			t.Errorf("two rows are named %s", row.Name)
		}
		names[row.Name] = true
	}
}
