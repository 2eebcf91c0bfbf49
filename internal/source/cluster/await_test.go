package cluster

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestAwaitNode walks through what a Node may lack at the start, and for how
// long that is waited for (12.46, 12.47, P86).
func TestAwaitNode(t *testing.T) {
	address := []netip.Addr{netip.MustParseAddr("192.168.7.1")}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24")}
	bare := &model.Node{Name: "node-1"}
	for _, c := range []struct {
		name   string
		mode   model.DetectMode
		states map[time.Duration]*model.Node // from when on
		waits  time.Duration
		err    string
		log    string
	}{
		{"12.46 complete", model.DetectClusterCIDR, map[time.Duration]*model.Node{0: {Addresses: address}}, 0, "", "192.168.7.1"},
		{"12.46 addresses after a while", model.DetectClusterCIDR, map[time.Duration]*model.Node{0: bare, 4500 * time.Millisecond: {Addresses: address}}, 5 * time.Second, "", "192.168.7.1"},
		{"12.46 no addresses", model.DetectClusterCIDR, map[time.Duration]*model.Node{0: bare}, 30 * time.Second, "", "level=ERROR"},
		{"12.46 no Node", model.DetectClusterCIDR, nil, 30 * time.Second, "", "exists=false"},
		{"12.46 NodeCIDR, complete", model.DetectNodeCIDR, map[time.Duration]*model.Node{0: {Addresses: address, PodCIDRs: ranges}}, 0, "", ""},
		{"12.47 NodeCIDR, ranges before addresses", model.DetectNodeCIDR,
			map[time.Duration]*model.Node{0: {PodCIDRs: ranges}, 10 * time.Second: {PodCIDRs: ranges, Addresses: address}}, 10 * time.Second, "", ""},
		{"12.47 NodeCIDR, addresses before ranges", model.DetectNodeCIDR,
			map[time.Duration]*model.Node{0: {Addresses: address}, 4 * time.Minute: {PodCIDRs: ranges}}, 4 * time.Minute, "", ""},
		{"12.46 NodeCIDR, no ranges", model.DetectNodeCIDR, map[time.Duration]*model.Node{0: {Addresses: address}}, 5 * time.Minute, "Node node-1 has no podCIDRs", ""},
		{"12.46 NodeCIDR, no Node", model.DetectNodeCIDR, nil, 5*time.Minute + 30*time.Second, "there is no Node node-1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				state := func() *model.Node {
					var last *model.Node
					var since time.Duration = -1
					for from, n := range c.states {
						if from > since && from <= time.Since(began) {
							last, since = n, from
						}
					}
					return last
				}
				var log netlab.LogBuffer
				cluster := &Cluster{Config: Config{NodeConfig: model.Config{NodeName: "node-1", DetectLocal: c.mode}, Log: slog.New(slog.NewTextHandler(&log, nil))}}
				err := cluster.awaitNode(t.Context(), state)
				if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
					t.Errorf("%v, want %q", err, c.err)
				}
				if took := time.Since(began); took != c.waits {
					t.Errorf("waited %v, want %v", took, c.waits)
				}
				if !strings.Contains(log.String(), c.log) || strings.Count(log.String(), "\n") != 1 {
					t.Errorf("log %q, want one line with %q", log.String(), c.log)
				}
			})
		})
	}
}

// TestAwaitNodeEnds: AwaitNode returns when its context ends.
func TestAwaitNodeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		var asked atomic.Int32
		cluster := &Cluster{Config: Config{Log: slog.New(slog.DiscardHandler)}}
		err := cluster.awaitNode(ctx, func() *model.Node { asked.Add(1); return nil })
		if err == nil || asked.Load() < 7 {
			t.Errorf("%v after %d looks", err, asked.Load())
		}
	})
}
