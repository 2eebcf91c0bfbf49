package model

import "net/netip"

// DetectMode is how packets of local pods are recognised (section 7).
type DetectMode uint8

const (
	DetectClusterCIDR         DetectMode = iota // by a source in the cluster CIDR of its family
	DetectNodeCIDR                              // by a source in the pod CIDR of the Node
	DetectBridgeInterface                       // by one input interface
	DetectInterfaceNamePrefix                   // by the name prefix of the input interface
)

// ParseDetectMode parses the name of a mode (7.8).
func ParseDetectMode(name string) (DetectMode, error) {
	return parseName("mode", name, []string{"ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"}, DetectClusterCIDR)
}

// Detector recognises packets of pods in one family by their source or by the
// input interface.
type Detector struct {
	Prefix    netip.Prefix // valid: by source
	Interface string       // name, or prefix of a name
	ByPrefix  bool         // Interface is a prefix
}

// newDetectors returns the detectors of the mode. In a family without one, no client
// counts as a pod (7.2).
func newDetectors(node *Node, c Config) map[Family]Detector {
	out := make(map[Family]Detector)
	ranges := map[DetectMode][]netip.Prefix{DetectClusterCIDR: c.ClusterCIDRs, DetectNodeCIDR: node.PodCIDRs}[c.DetectLocal]
	byInterface := c.DetectLocal == DetectBridgeInterface || c.DetectLocal == DetectInterfaceNamePrefix
	for _, f := range Families {
		if own := prefixesOf(ranges, f); len(own) > 0 {
			out[f] = Detector{Prefix: own[0].Masked()}
		} else if byInterface && c.PodInterface != "" {
			out[f] = Detector{Interface: c.PodInterface, ByPrefix: c.DetectLocal == DetectInterfaceNamePrefix}
		}
	}
	return out
}
