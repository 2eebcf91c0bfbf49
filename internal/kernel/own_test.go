package kernel

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/host"
)

// TestOwnNeedsPersistence: a kernel that does not know the flags refuses them, and the
// trial leaves nothing behind.
func TestOwnNeedsPersistence(t *testing.T) {
	s := newSandbox(t)
	before, err := s.Generation()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.tryTable(1 << 30); !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("a flag that no kernel has: %v", err)
	}
	if err := s.tryTable(0); err != nil {
		t.Errorf("no flag: %v", err)
	}
	if after, err := s.Generation(); err != nil || after != before || s.nft(t, "list", "tables") != "" {
		t.Errorf("generation %d became %d, %v, tables %q", before, after, err, s.nft(t, "list", "tables"))
	}
}

// TestUnseenOwner: the process may be in another container.
func TestUnseenOwner(t *testing.T) {
	s := newSandbox(t)
	if p := host.ProcessOf(s.nl.PID()); p != (host.Process{}) { // of another namespace than this thread's
		t.Errorf("found %s", p)
	}
	if text := (&OwnedError{Table: "ip nftproxy", Port: 7}).Error(); !strings.Contains(text, "not visible here") {
		t.Error(text)
	}
}

// TestMoment: 13.30. A generation stands for the same rules for less time than 32 bits of
// transactions take.
func TestMoment(t *testing.T) {
	const day = Moment(24 * time.Hour)
	hour := Moment(time.Hour)
	for name, c := range map[string]struct {
		made, later Moment
		want        bool
	}{
		"the same moment":           {day, day, true},
		"an hour later":             {day, day + hour, true},
		"more than an hour later":   {day, day + hour + 1, false},
		"of the future":             {day + 1, day, false},
		"before the machine starts": {-1, 0, false},
		"unknown":                   {0, hour / 2, false},
	} {
		if got := c.made.Distinguishes(c.later); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	before, beforeErr := Now()
	after, afterErr := Now()
	if beforeErr != nil || afterErr != nil || !before.Distinguishes(after) {
		t.Errorf("%d and then %d, %v, %v", before, after, beforeErr, afterErr)
	}
}
