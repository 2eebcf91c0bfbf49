package systemd

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// listen takes the place of systemd. The functions returned are the next message, and
// the log of what cannot be sent.
func listen(t *testing.T, address string) (next func() string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", address)
	return func() string {
		t.Helper()
		message := make([]byte, 4096)
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
}

// TestNotifier: 12.80, on a socket with a path and on an abstract one.
func TestNotifier(t *testing.T) {
	for name, address := range map[string]string{
		"path":     filepath.Join(t.TempDir(), "notify"),
		"abstract": "@nftproxy-test-" + strconv.FormatInt(time.Now().UnixNano(), 36),
	} {
		t.Run(name, func(t *testing.T) {
			next := listen(t, address)
			t.Setenv("WATCHDOG_USEC", "4000000")
			t.Setenv("WATCHDOG_PID", "")
			n := New(slog.New(slog.DiscardHandler))
			if got := n.BeatPeriod(); got != time.Second {
				t.Errorf("a beat every %s, want 1s", got)
			}
			n.Ready()
			n.Ready()
			n.Beat()
			n.Changed()
			n.Changed()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				n.Run(ctx, func() string { return "2 Services; \x1b[31m\nmore" })
			}()
			for _, want := range []string{"READY=1", "WATCHDOG=1", `STATUS=2 Services; \x1b[31m...`} {
				if got := next(); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			stop()
			<-ended
			if got := next(); got != "STOPPING=1" {
				t.Errorf("got %q at the end", got)
			}
		})
	}
}

// TestFailed: the reason of an end is in the status, cut.
func TestFailed(t *testing.T) {
	next := listen(t, filepath.Join(t.TempDir(), "notify"))
	Failed(errors.New(strings.Repeat("x", 1000) + "\nsecond line"))
	if got, want := next(), "STATUS="+strings.Repeat("x", maxStatus)+"..."; got != want {
		t.Errorf("got %q", got)
	}
}

// TestUnsupervised: without a socket nothing is sent, and nothing fails.
func TestUnsupervised(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := New(nil)
	if n != nil || n.BeatPeriod() != 0 {
		t.Errorf("%+v", n)
	}
	n.Ready()
	n.Beat()
	n.Changed()
	n.Run(t.Context(), nil)
	Failed(errors.New("unnoticed"))
}

// TestUnreachable: a socket that is gone is logged once, and blocks nothing. A full queue at the
// end is delivered, with the goroutine that delivers it.
func TestUnreachable(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	t.Setenv("WATCHDOG_USEC", "soon")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := New(slog.New(slog.NewTextHandler(&log, nil)))
		for range 3 * queued {
			n.Beat()
		}
		n.Ready() // lost with the others
		ctx, stop := context.WithCancel(t.Context())
		stop()
		begin := time.Now()
		n.Run(ctx, nil)
		if took := time.Since(begin); took > 0 {
			t.Errorf("the end took %v", took)
		}
		for _, want := range []string{"no watchdog", "systemd cannot be notified"} {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("no single %q in %s", want, log.String())
			}
		}
	})
}
