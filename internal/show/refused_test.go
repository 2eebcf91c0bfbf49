package show

import "testing"

// TestRefused: the largest number comes first, and of equal ones the first name (16.6).
func TestRefused(t *testing.T) {
	const want = "12 denied, 3 no-endpoints, 3 rate"
	if got := refused(map[string]uint64{"rate": 3, "denied": 12, "no-endpoints": 3}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
