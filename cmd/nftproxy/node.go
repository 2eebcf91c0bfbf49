package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	// addressPatience is how long the addresses of the Node are waited for, and
	// podRangePatience how long its pod ranges are, looking every nodePoll
	// (12.46).
	addressPatience  = 30 * time.Second
	podRangePatience = 5 * time.Minute
	nodePoll         = time.Second
)

// awaitNode returns when the Node says what the rules depend on. Without
// addresses it goes on after a while; in mode NodeCIDR there must be pod ranges.
// Every look is at the latest state (12.47).
func awaitNode(ctx context.Context, node func() *model.Node, c model.Config, log *slog.Logger) error {
	addressed := func() bool { n := node(); return n != nil && len(n.Addresses) > 0 }
	if poll(ctx, addressPatience, addressed) {
		log.Info("node", "name", c.NodeName, "addresses", model.NewLocality(node(), c).Node.Addresses)
	} else if ctx.Err() == nil {
		log.Error("the Node has no addresses: NodePorts wait for them, where --bind-address and --nodeport-addresses do not give any", "node", c.NodeName, "exists", node() != nil)
	}
	if c.DetectLocal != model.DetectNodeCIDR || ctx.Err() != nil {
		return ctx.Err()
	}
	switch found := poll(ctx, podRangePatience, func() bool { n := node(); return n != nil && len(n.PodCIDRs) > 0 }); {
	case found, ctx.Err() != nil:
		return ctx.Err()
	case node() == nil:
		return fmt.Errorf("mode NodeCIDR: there is no Node %s: name this node with --hostname-override", c.NodeName)
	}
	return fmt.Errorf("mode NodeCIDR: Node %s has no podCIDRs: let the controller manager allocate them, or use another --detect-local-mode", c.NodeName)
}

// poll returns true as soon as done does, false when patience or ctx is at its
// end.
func poll(ctx context.Context, patience time.Duration, done func() bool) bool {
	deadline := time.Now().Add(patience)
	for !done() {
		if !time.Now().Before(deadline) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(nodePoll):
		}
	}
	return true
}
