// Package condition keeps a condition of this node's Node object up to date, by which other
// programs keep pods off nodes without rules.
package condition

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/health"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

// Type is the type of the condition.
const Type corev1.NodeConditionType = "nftproxy.dev/ServicesProgrammed"

const (
	// poll is how often the state is read without a sync: one that hangs reports nothing.
	poll = 5 * time.Second
	// recheck is how often the Node is read although nothing changed, up to a quarter
	// later: it may have been made anew, or another program may have written it.
	recheck = 5 * time.Minute
	// pause is the time between two writes, after the first ones: a start writes two.
	pause  = 10 * time.Second
	writes = 3
	// firstRetry is the time to the attempt after one that failed. It doubles up to recheck.
	firstRetry = 10 * time.Second
	// attemptTime is how long the API server has for its answers.
	attemptTime = 10 * time.Second
)

// Keeper writes the condition while [Keeper.Run] runs.
type Keeper struct {
	node    *feature.Node
	changed chan struct{}
	limit   flowcontrol.RateLimiter

	last  health.Programmed // that the Node has, if known
	known bool              // else it is read
	next  time.Time         // the earliest attempt, and the next read
	retry time.Duration
}

func newKeeper(n *feature.Node) *Keeper {
	return &Keeper{node: n, changed: make(chan struct{}, 1), limit: flowcontrol.NewTokenBucketRateLimiter(float32(1/pause.Seconds()), writes)}
}

// Run writes changes until ctx ends, and leaves the condition as it is: the rules stay, too
// (10.30).
func (k *Keeper) Run(ctx context.Context) {
	ticks := time.NewTicker(poll)
	defer ticks.Stop()
	for {
		k.keep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		case <-k.changed:
		}
	}
}

// keep makes an attempt if one is due. A change of any field of the state is written. While the state is not known, the
// condition stays as it is.
func (k *Keeper) keep(ctx context.Context) {
	state, ok := k.node.Serving().Programmed()
	due := !time.Now().Before(k.next)
	if !ok || k.retry > 0 && !due || k.known && state == k.last && !due || !k.limit.TryAccept() {
		return
	}
	err := k.reconcile(ctx, state)
	if ctx.Err() != nil {
		return
	}
	if err != nil && k.retry == 0 {
		k.node.Log.Warn("cannot write the condition of the Node; check that the API server is reachable and allows this node to get nodes and to patch nodes/status (--node-condition)",
			"node", k.node.Config.Node.NodeName, "error", err)
	}
	if err == nil && k.retry > 0 {
		k.node.Log.Info("the condition of the Node is written again", "node", k.node.Config.Node.NodeName)
	}
	after := recheck
	if err != nil {
		after = min(cmp.Or(k.retry, firstRetry), recheck)
		k.retry = 2 * after
	} else {
		k.retry = 0
	}
	k.last, k.known, k.next = state, err == nil, time.Now().Add(wait.Jitter(after, 0.25))
}

// reconcile reads the Node, and writes the condition if it says something else: a restart
// must not count as a transition, and the Node is sent to all that watch it.
func (k *Keeper) reconcile(ctx context.Context, want health.Programmed) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	name := k.node.Config.Node.NodeName
	client, err := k.node.Condition() // for each attempt: the kubeconfig of a new node may not exist yet
	if err != nil {
		return err
	}
	// As JSON: the protobuf decoder of this client may leave conditions out. And the latest
	// state: one from before the last patch would keep the next one from being made.
	const accept, asJSON = "Accept", "application/json"
	answer := client.Get().Resource("nodes").Name(name).SetHeader(accept, asJSON).Do(ctx)
	err = answer.Error() // its other methods leave out what the API server says
	var node struct {
		Status struct{ Conditions []corev1.NodeCondition }
	}
	if err == nil {
		body, _ := answer.Raw()
		err = json.Unmarshal(body, &node)
	}
	if err != nil {
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	patch := patchOf(node.Status.Conditions, want, metav1.Now())
	if patch == nil {
		return nil
	}
	err = client.Patch(types.StrategicMergePatchType).Resource("nodes").Name(name).SubResource("status").SetHeader(accept, asJSON).Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("patch status of Node %s: %w", name, err)
	}
	return nil
}

// patchOf returns the patch that leads from the conditions of a Node to a state, or nil. It
// changes the condition of [Type] alone.
func patchOf(has []corev1.NodeCondition, want health.Programmed, now metav1.Time) []byte {
	c := corev1.NodeCondition{Type: Type, Status: corev1.ConditionFalse, Reason: want.Reason, Message: want.Message, LastHeartbeatTime: now, LastTransitionTime: now}
	if want.Yes {
		c.Status = corev1.ConditionTrue
	}
	for _, old := range has {
		switch {
		case old.Type != Type:
		case old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message:
			return nil
		case old.Status == c.Status:
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	body, _ := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{c}}}) // these types cannot fail
	return body
}

type Kind struct{}

// New implements [feature.Kind]. The condition follows what the health server answers (10.27).
func (Kind) New(n *feature.Node) feature.Feature {
	if n.Condition == nil {
		return nil
	}
	return newKeeper(n)
}

func (k *Keeper) FollowSync(*feature.Sync) { parallel.Signal(k.changed) }

func (Kind) Leaves() []feature.Leftover {
	return []feature.Leftover{
		{
			Name: "node condition", What: "`nftproxy.dev/ServicesProgrammed` of the Node, with `--node-condition` ([10.28](behaviour.md#s10.28))",
			Mark:     "its type",
			Restored: "every 5 minutes",
			Removed:  "deleting the Node, or `kubectl patch node NODE --subresource=status -p '{\"status\":{\"conditions\":[{\"type\":\"nftproxy.dev/ServicesProgrammed\",\"$patch\":\"delete\"}]}}'`",
			Writers:  []string{"internal/feature/condition/condition.go"},
		},
	}
}
