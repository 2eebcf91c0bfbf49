package kernel

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestRest: 13.30. After the last report, a watcher knows of each transaction up to a
// generation whether it has changed our tables.
func TestRest(t *testing.T) {
	desired := workload.Sticky(model.PolicyCluster, time.Hour, "1 2")
	nftOf := func(lines ...string) func(*testing.T, *sandbox) {
		return func(t *testing.T, s *sandbox) {
			for _, line := range lines {
				s.nft(t, strings.Fields(line)...)
			}
		}
	}
	for name, c := range map[string]struct {
		happens func(*testing.T, *sandbox)
		changed bool
	}{
		"nothing":             {func(*testing.T, *sandbox) {}, false},
		"tables of others":    {nftOf("add table ip other", "add chain ip other nftproxy", "delete table ip other"), false},
		"a binding":           {nftOf("add element ip nftproxy affinity { 192.168.7.1 . tcp . 30080 . 198.51.100.1 timeout 1h : 10.128.0.1 . 8080 }"), false},
		"our own transaction": {func(t *testing.T, s *sandbox) { s.apply(t, workload.Scenario(40, 3, 0)) }, false},
		"a large one of ours": {func(t *testing.T, s *sandbox) { s.apply(t, workload.Scenario(3000, 2, 0)) }, false},
		"an element":          {nftOf("add element ip nftproxy services { 192.0.2.1 . tcp . 80 : 0:2 }"), true},
		"there and back":      {nftOf("add chain ip nftproxy x", "delete chain ip nftproxy x"), true},
		"beside others":       {nftOf("add table ip other", "flush chain ip nftproxy refuse", "add table ip another"), true},
		"all rules":           {nftOf("flush ruleset"), true},
		"while the watch is off": {func(t *testing.T, s *sandbox) {
			resume := s.watcher.pauseWatch(s.Conn)
			s.nft(t, "flush", "chain", "ip", "nftproxy", "refuse")
			resume(false)
		}, true},
		"more than it can keep": {func(t *testing.T, s *sandbox) {
			s.apply(t, workload.Scenario(10_000, 4, 0))
			s.nft(t, "flush", "map", "ip", "nftproxy", "endpoints")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			var w *Watcher
			if err := s.ns.Do(func() (err error) { w, err = Watch(s.Conn); return err }); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = w.Close() })
			for _, phase := range plan.Diff(&nft.Ruleset{}, desired).Phases() {
				if _, err := s.Commit(Prepared{Plan: phase}, AnyGeneration); err != nil {
					t.Fatal(err)
				}
			}
			stopped := make(chan error)
			go func() {
				_, err := w.Next() // there is nothing yet
				stopped <- err
			}()
			w.Stop()
			if err := <-stopped; !errors.Is(err, ErrStopped) {
				t.Fatal(err)
			}
			c.happens(t, s)
			generation, changed, err := w.Rest(s.Conn)
			if err != nil || changed != c.changed || generation != s.ns.TestGeneration(t) {
				t.Errorf("generation %d, changed: %t, %v; want %d, %t", generation, changed, err, s.ns.TestGeneration(t), c.changed)
			}
		})
	}
}
