package condition

import "github.com/nftproxy/nftproxy/internal/feature"

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind]. The condition follows what the health server answers (10.27).
func (Kind) New(n *feature.Node) feature.Feature {
	if n.Condition == nil {
		return nil
	}
	return New(Config{
		Connect: n.Condition, Node: n.Config.Node.NodeName, Log: n.Log,
		State: func() (State, bool) {
			p, known := n.Serving().Programmed()
			return State{True: p.Yes, Reason: p.Reason, Message: p.Message}, known
		},
	})
}

// FollowSync implements [feature.Observer].
func (k *Keeper) FollowSync(*feature.Sync) { k.Changed() }
