package takeover

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/takeover"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestKubeProxyCleanup: 12.61, nothing is removed before our own rules are active; then
// once, and once more after a minute.
func TestKubeProxyCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log netlab.LogBuffer
		start := time.Now()
		var at []time.Duration
		s := newCleanup(takeover.NoMarker, slog.New(slog.NewTextHandler(&log, nil)))
		go s.removeTwice(t.Context(), func(context.Context) ([]string, error) {
			at = append(at, time.Since(start))
			return []string{"table ip kube-proxy"}, errors.New("busy")
		})
		time.Sleep(time.Hour)
		s.FollowSync(&feature.Sync{Complete: true, Err: errors.New("refused by the kernel")})
		s.FollowSync(&feature.Sync{}) // of the files alone
		time.Sleep(time.Hour)
		s.FollowSync(&feature.Sync{Complete: true})
		s.FollowSync(&feature.Sync{Complete: true})
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{2 * time.Hour, 2*time.Hour + secondRemoval}; !slices.Equal(at, want) {
			t.Errorf("removed at %v, want %v", at, want)
		}
		for _, want := range []string{"took over from kube-proxy", "kube-proxy has written its rules again", "cannot remove all leftovers of kube-proxy"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q: %s", want, log.String())
			}
		}
	})
}

// TestKubeProxyCleanupEnds: it does nothing after the daemon has ended.
func TestKubeProxyCleanupEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCleanup(takeover.NoMarker, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.removeTwice(ctx, func(context.Context) ([]string, error) { t.Error("something was removed"); return nil, nil })
	})
}
