package kernel

import (
	"errors"
	"strings"
	"testing"

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
