package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	// addressTimeout is how long AwaitNode waits for the addresses of the Node, and podRangeTimeout how long for
	// its pod ranges; it polls every nodePoll (12.46).
	addressTimeout  = 30 * time.Second
	podRangeTimeout = 5 * time.Minute
	nodePoll        = time.Second
	// serviceRangeTimeout is how long Await waits for the ServiceCIDRs: they may be forbidden (14.3).
	serviceRangeTimeout = 2 * time.Second
	// readTimeout is how long Read waits.
	readTimeout = 30 * time.Second
	// silenceTimeout is how long it waits for the first object.
	silenceTimeout = 10 * time.Second
)

// AwaitNode implements [source.Source]. Without addresses it continues after a while; in mode NodeCIDR there must
// be pod ranges. Every check uses the latest state (12.47).
func (c *Cluster) AwaitNode(ctx context.Context) error {
	if err := c.nodes.wait(ctx); err != nil {
		return err
	}
	return c.awaitNode(ctx, c.Node)
}

func (c *Cluster) awaitNode(ctx context.Context, node func() *model.Node) error {
	name := c.NodeConfig.NodeName
	addressed := func() bool { n := node(); return n != nil && len(n.Addresses) > 0 }
	if pollUntil(ctx, addressTimeout, addressed) {
		c.Log.Info("node", "name", name, "addresses", model.NewLocality(node(), c.NodeConfig).Node.Addresses)
	} else if ctx.Err() == nil {
		c.Log.Error("the Node has no addresses: it serves NodePorts only on those that --bind-address and --nodeport-addresses name",
			"node", name, "exists", node() != nil)
	}
	if c.NodeConfig.DetectLocal != model.DetectNodeCIDR || ctx.Err() != nil {
		return ctx.Err()
	}
	switch found := pollUntil(ctx, podRangeTimeout, func() bool { n := node(); return n != nil && len(n.PodCIDRs) > 0 }); {
	case found, ctx.Err() != nil:
		return ctx.Err()
	case node() == nil:
		return fmt.Errorf("mode NodeCIDR: there is no Node %s: name this node with --hostname-override", name)
	}
	return fmt.Errorf("mode NodeCIDR: Node %s has no podCIDRs: let the controller manager allocate them, or use another --detect-local-mode", name)
}

func pollUntil(ctx context.Context, timeout time.Duration, done func() bool) bool {
	return wait.PollUntilContextTimeout(ctx, nodePoll, timeout, true, func(context.Context) (bool, error) { return done(), nil }) == nil
}

// Await implements [source.Source]. It returns when everything is known that the first rules depend on; otherwise a
// restart would remove rules and add them again. Services and EndpointSlices are required (13.1), ServiceCIDRs only
// for a limited time.
func (c *Cluster) Await(ctx context.Context) error {
	if err := c.waitSynced(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, serviceRangeTimeout)
	defer cancel()
	if err := c.cidrs.wait(limited); err != nil && ctx.Err() == nil {
		c.Log.Error("starting without an answer of the API server", "about", "ServiceCIDRs", "error", err)
	}
	return ctx.Err()
}

// waitSynced returns when Services and EndpointSlices have been listed
// completely (13.1); if ctx ends first, the error names those that have not.
func (c *Cluster) waitSynced(ctx context.Context) error {
	if err := c.services.wait(ctx); err != nil {
		return err
	}
	return c.slices.wait(ctx)
}

// Read runs the Cluster until the objects are known, and returns them. Requests that fail are
// not logged: the error names the last one.
func (c *Cluster) Read(ctx context.Context) (*model.Snapshot, error) {
	for _, r := range c.all() {
		r.listing.to, r.watching.to = slog.New(slog.DiscardHandler), slog.New(slog.DiscardHandler)
	}
	run := func(ctx context.Context) { _ = c.Run(ctx, func() {}) }
	if err := c.runUntil(ctx, silenceTimeout, run, c.nodes.wait, c.Await); err != nil {
		return nil, err
	}
	return c.Snapshot()
}

// ReadNode reads the Node alone.
func (c *Cluster) ReadNode(ctx context.Context) (*model.Node, error) {
	if err := c.runUntil(ctx, readTimeout, c.RunNode, c.nodes.wait); err != nil {
		return nil, err
	}
	return c.Node(), nil
}

// runUntil runs a part of the Cluster until the waits are over. silence is how long the API server may
// take for its first object.
func (c *Cluster) runUntil(ctx context.Context, silence time.Duration, run func(context.Context), waits ...func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	impatient := time.AfterFunc(silence, func() {
		if !c.hasAnswered() {
			cancel()
		}
	})
	defer impatient.Stop()
	begun := time.Now()
	running.Go(func() { run(limited) })
	for _, wait := range waits {
		if err := wait(limited); err != nil {
			return c.explainUnread(ctx, time.Since(begun).Round(time.Second), err)
		}
	}
	return nil
}

// explainUnread returns why Read has not read all objects. err is the error of the context that
// limits it, and ctx the one that does not.
func (c *Cluster) explainUnread(ctx context.Context, took time.Duration, err error) error {
	switch last := c.lastError(); {
	case ctx.Err() != nil:
		return fmt.Errorf("read cluster: %w", ctx.Err())
	case last != nil:
		err = last
	}
	if c.hasAnswered() {
		return fmt.Errorf("read cluster: incomplete after %v: %w", took, err)
	}
	return fmt.Errorf("read cluster: no objects from the API server in %v: %w", took, err)
}
