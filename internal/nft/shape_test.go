package nft

import "testing"

// TestSetIDs: the identity of each set is found by its name, and no two sets have the
// same name.
func TestSetIDs(t *testing.T) {
	rows := make(map[string]*Row)
	for i := range Schema {
		r := &Schema[i]
		for _, id := range r.Sets() {
			name := id.String()
			if rows[name] != nil {
				t.Errorf("two rows have the set %s: %+v and %+v", name, rows[name], r)
			}
			rows[name] = r
			if got := IDOf(name); got != id || RowOf(name) != r {
				t.Errorf("%s is %+v of the row %+v, want %+v of %+v", name, got, RowOf(name), id, r)
			}
		}
	}
	for name, want := range map[string]SetID{
		"allowed-24":                    {"allowed-24", OfPort},
		OfRange.Set("allowed-24"):       {"allowed-24", OfRange},
		"node-clients-of-rate-1-second": {"clients-of-rate-1-second", OfNode},
		"node-allow-frontends":          {"node-allow-frontends", OfPort}, // there is no such set
		"":                              {},
	} {
		if got := IDOf(name); got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
}
