package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// TestClock: 13.30. In another time namespace the clock shows another moment, and a record has
// another identity.
func TestClock(t *testing.T) {
	const there = "TEST_CLOCK_THERE"
	namespace, err := timeNamespace()
	now, nowErr := Now()
	if err := errors.Join(err, nowErr); err != nil {
		t.Fatal(err)
	}
	if os.Getenv(there) != "" {
		fmt.Printf("there %s %d\n", namespace, now)
		return
	}
	if again, err := timeNamespace(); err != nil || again != namespace {
		t.Errorf("%q and then %q, %v", namespace, again, err)
	}
	cmd := exec.Command("unshare", "--time", "--boottime", "86400", "--fork", os.Args[0], "-test.run", "^TestClock$")
	cmd.Env = append(os.Environ(), there+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var other string
	var later Moment
	if _, err := fmt.Sscanf(string(out), "there %s %d", &other, &later); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if other == namespace || other == "" || later < now+Moment(24*time.Hour) || now.Distinguishes(later) {
		t.Errorf("the clock of %s shows %d, the one of %s %d", namespace, now, other, later)
	}
	s := newSandbox(t)
	if i, err := s.Identity(); err != nil || i.Clock != namespace {
		t.Errorf("identity %+v, %v, want the clock %s", i, err, namespace)
	}
}
