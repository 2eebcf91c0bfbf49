package condition

import (
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/parallel"
)

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
