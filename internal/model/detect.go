package model

import (
	"fmt"
	"net/netip"
)

// DetectMode is how packets of local pods are recognised (section 7).
type DetectMode uint8

const (
	DetectClusterCIDR         DetectMode = iota // by a source in the cluster CIDR of its family
	DetectNodeCIDR                              // by a source in the pod CIDR of the Node
	DetectBridgeInterface                       // by one input interface
	DetectInterfaceNamePrefix                   // by the name prefix of the input interface
)

// detectModes are the names of the flag.
var detectModes = map[string]DetectMode{
	"ClusterCIDR":         DetectClusterCIDR,
	"NodeCIDR":            DetectNodeCIDR,
	"BridgeInterface":     DetectBridgeInterface,
	"InterfaceNamePrefix": DetectInterfaceNamePrefix,
}

// ParseDetectMode parses the name of a mode (7.8).
func ParseDetectMode(name string) (DetectMode, error) {
	m, ok := detectModes[name]
	if !ok {
		return 0, fmt.Errorf("unknown mode %q: use ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix", name)
	}
	return m, nil
}

// Detector recognises packets of pods in one family by their source or by the
// input interface.
type Detector struct {
	Prefix    netip.Prefix // valid: by source
	Interface string       // name, or prefix of a name
	ByPrefix  bool         // Interface is a prefix
}

// detectors returns the detectors of the mode. In a family without one, no client
// counts as a pod (7.2).
func detectors(node *Node, c Config) map[Family]Detector {
	out := make(map[Family]Detector)
	for _, f := range Families {
		switch c.DetectLocal {
		case DetectBridgeInterface, DetectInterfaceNamePrefix:
			if c.PodInterface != "" {
				out[f] = Detector{Interface: c.PodInterface, ByPrefix: c.DetectLocal == DetectInterfaceNamePrefix}
			}
			continue
		}
		ranges := c.ClusterCIDRs
		if c.DetectLocal == DetectNodeCIDR {
			ranges = node.PodCIDRs
		}
		if own := prefixesOf(ranges, f); len(own) > 0 {
			out[f] = Detector{Prefix: own[0].Masked()}
		}
	}
	return out
}
