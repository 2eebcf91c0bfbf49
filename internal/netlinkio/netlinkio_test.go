package netlinkio_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

func TestFades(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EINTR: true, unix.ENOBUFS: true, os.ErrDeadlineExceeded: true,
		unix.EPERM: false, unix.EINVAL: false, errors.New("something else"): false,
	} {
		wrapped := fmt.Errorf("ask: %w", &netlink.OpError{Op: "receive", Err: err})
		if got := netlinkio.Fades(wrapped); got != want {
			t.Errorf("%v fades: %t, want %t", err, got, want)
		}
	}
	if netlinkio.Fades(nil) {
		t.Error("no error fades")
	}
}

// TestRenew: waiting for a lost answer ends.
func TestRenew(t *testing.T) {
	c, err := netlink.Dial(unix.NETLINK_GENERIC, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	netlinkio.Renew(c)
	if _, err := c.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) || !netlinkio.Fades(err) {
		t.Errorf("received %v, want that the time is over", err)
	}
	if waited := time.Since(start); waited < netlinkio.Patience {
		t.Errorf("waited %s, want %s", waited, netlinkio.Patience)
	}
}
