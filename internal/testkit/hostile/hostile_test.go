package hostile

import (
	"strings"
	"testing"
)

// failure records that a check has failed.
type failure struct {
	testing.TB
	failed bool
}

func (f *failure) Errorf(string, ...any) { f.failed = true }

// TestChecks: each check fails, and passes.
func TestChecks(t *testing.T) {
	for text, bad := range map[string]bool{"a\n\tb → é": false, "\x1b[2J": true, "\r": true, "\u202e": true, "\xff": true, "\u009b2J": true} {
		f := &failure{TB: t}
		if CheckText(f, text); f.failed != bad {
			t.Errorf("%q: %t", text, f.failed)
		}
	}
	var kept string
	for size, bad := range map[int]bool{100: false, slack / 2: false, 4 * slack: true} {
		f := &failure{TB: t}
		if CheckMemory(f, 10, 8, func() { kept = strings.Repeat("x", size) }); f.failed != bad || len(kept) != size {
			t.Errorf("%d bytes: %t", size, f.failed)
		}
	}
}
