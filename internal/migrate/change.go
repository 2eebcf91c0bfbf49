package migrate

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Change is a change that a command has made, or would make.
type Change struct {
	Target
	Undo   bool
	Patch  Patch // empty: nothing was to be done
	DryRun bool
	// Nodes have the label: kube-proxy leaves them now, or returns to them.
	Nodes []string

	before, after affinity
	// onDelete reports that pods on other nodes are not restarted for the change.
	onDelete bool
}

// attempts limits how often a patch is made again because another client has changed
// the affinity after it was read.
const attempts = 5

// KeepOff makes kube-proxy's pods leave the nodes with the label, and not return.
func (c *Client) KeepOff(ctx context.Context, dry bool) (*Change, error) {
	return c.change(ctx, &Change{Target: c.Target, DryRun: dry}, c.Label.keepOff)
}

// Undo removes what KeepOff has added.
func (c *Client) Undo(ctx context.Context, dry bool) (*Change, error) {
	return c.change(ctx, &Change{Target: c.Target, DryRun: dry, Undo: true}, c.Label.undo)
}

func (c *Client) change(ctx context.Context, ch *Change, patch func(affinity) Patch) (_ *Change, err error) {
	if ch.Nodes, err = c.labelled(ctx); err != nil {
		return nil, err
	}
	for range attempts {
		var d *daemon
		if d, ch.before, err = c.read(ctx); err != nil {
			return nil, err
		}
		ch.onDelete = d.Spec.UpdateStrategy.Type == "OnDelete"
		if ch.Patch = patch(ch.before); ch.Patch == nil {
			ch.after = ch.before
			return ch, nil
		}
		if ch.after, err = c.patch(ctx, ch.Patch, ch.DryRun); err == nil {
			return ch, nil
		}
		if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) { // not changed in between
			break
		}
	}
	if apierrors.IsInvalid(err) {
		err = fmt.Errorf("another client keeps changing its affinity: %w: try again", err)
	}
	return nil, fmt.Errorf("patch DaemonSet %s: %w", c.Target, err)
}
