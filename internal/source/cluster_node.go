package source

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
)

// nodeSeen stores a version of the Node. A Node that is created again has no
// addresses until the cloud controller manager gives it some, and no podCIDRs
// until the controller manager does. The machine has not changed, so the last
// known ones of a family stay in use until the Node has others (12.54).
func (c *Cluster) nodeSeen(e event[model.Node]) {
	if e.now == nil {
		return
	}
	node := *e.now
	var addresses []netip.Addr
	var podCIDRs []netip.Prefix
	if c.lastNode != nil {
		addresses = missing(c.lastNode.Addresses, node.Addresses, model.FamilyOf)
		podCIDRs = missing(c.lastNode.PodCIDRs, node.PodCIDRs, func(p netip.Prefix) model.Family { return model.FamilyOf(p.Addr()) })
	}
	node.Addresses = slices.Concat(node.Addresses, addresses)
	node.PodCIDRs = slices.Concat(node.PodCIDRs, podCIDRs)
	c.lastNode = &node
	c.reportKept(addresses, podCIDRs)
}

// missing returns the values of known of which now has no value of the same
// family.
func missing[T any](known, now []T, family func(T) model.Family) []T {
	return slices.DeleteFunc(slices.Clone(known), func(k T) bool {
		return slices.ContainsFunc(now, func(n T) bool { return family(n) == family(k) })
	})
}

// reportKept logs addresses and ranges that stay in use although the Node no
// longer has them, once per change.
func (c *Cluster) reportKept(addresses []netip.Addr, podCIDRs []netip.Prefix) {
	kept := ""
	if len(addresses) > 0 || len(podCIDRs) > 0 {
		kept = fmt.Sprint(addresses, podCIDRs)
	}
	switch {
	case kept == c.keptOfNode:
	case kept == "":
		c.Log.Info("the Node is complete again", "node", c.lastNode.Name)
	default:
		c.Log.Warn("the Node has lost addresses or podCIDRs; the last known ones stay in use until it has some again",
			"node", c.lastNode.Name, "addresses", addresses, "podCIDRs", podCIDRs)
	}
	c.keptOfNode = kept
}
