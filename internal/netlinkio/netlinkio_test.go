package netlinkio_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mdlayher/netlink"
	vishvananda "github.com/vishvananda/netlink"
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

// TestRenew: the wait for an answer that never comes ends.
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

// TestList: a list that changed while the kernel dumped it is asked for again; other errors are
// returned at once.
func TestList(t *testing.T) {
	interrupted := fmt.Errorf("list: %w", vishvananda.ErrDumpInterrupted)
	for _, c := range []struct {
		answers []error
		calls   int
	}{
		{[]error{nil}, 1},
		{[]error{interrupted, interrupted, nil}, 3},
		{[]error{interrupted, unix.EPERM, nil}, 2},
		{slices.Repeat([]error{interrupted}, 20), 10},
	} {
		calls := 0
		list, err := netlinkio.List(func() ([]int, error) { calls++; return []int{calls}, c.answers[calls-1] })
		if calls != c.calls || err != c.answers[calls-1] || !slices.Equal(list, []int{calls}) {
			t.Errorf("%v: %v, %v after %d calls", c.answers, list, err, calls)
		}
	}
}

// TestRetry: an attempt is repeated while its error is worth it, five times at most,
// with growing pauses.
func TestRetry(t *testing.T) {
	for _, c := range []struct {
		answers []error
		calls   int
		pauses  time.Duration
	}{
		{[]error{nil}, 1, 0},
		{[]error{unix.EINTR, unix.EINTR, unix.ENOBUFS, nil}, 4, 140 * time.Millisecond},
		{[]error{unix.EPERM, nil}, 1, 0},
		{slices.Repeat([]error{unix.ENOMEM}, 9), 5, 300 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls, start := 0, time.Now()
			err := netlinkio.Retry(netlinkio.Fades, func() error { calls++; return c.answers[calls-1] })
			if calls != c.calls || err != c.answers[calls-1] || time.Since(start) != c.pauses {
				t.Errorf("%v: %d calls in %v, %v", c.answers, calls, time.Since(start), err)
			}
		})
	}
}
