package config

import (
	"maps"
	"slices"
)

// gates are the feature gates that kube-proxy reads itself or by its libraries, and why
// they have no effect here; empty: they have one. Others belong to other programs of
// Kubernetes (cmd/kube-proxy, pkg/proxy and k8s.io/component-base in Kubernetes 1.37).
var gates = map[string]string{
	GateStatusz:                     "",
	GateFlagz:                       "",
	gateExternalIPs:                 "",
	gateLocalhost:                   "",
	gateIPVS:                        "it is for the mode ipvs",
	"NFTablesNetlink":               "rules are always written with netlink, never by the command nft",
	"NFTablesProxyMode":             "nftables is the only mode",
	"PreferSameTrafficDistribution": "hints for zones and nodes in EndpointSlices always count",
	"MultiCIDRServiceAllocator":     "ServiceCIDRs are read wherever the API server has them",
	"RelaxedServiceNameValidation":  "Services may have any name that the API server accepts",
	"StrictIPCIDRValidation":        "the API server checks addresses; malformed ones of old objects are reported",
	"WatchListClient":               "objects are read in lists, which cost the API server less",
	"ContextualLogging":             onlyLog,
	"LoggingAlphaOptions":           onlyLog,
	"LoggingBetaOptions":            onlyLog,
	"WinDSR":                        onlyWindows,
	"WinOverlay":                    onlyWindows,
}

const (
	gateIPVS    = "KubeProxyIPVS"
	onlyLog     = "it is about the log of kube-proxy"
	onlyWindows = "it is for Windows"
)

// remarkGates has a word on every gate that has no effect (12.8). With noIPVS, the
// configuration has a mode that its own gate turns off.
func (c *Config) remarkGates(noIPVS bool) {
	for _, name := range slices.Sorted(maps.Keys(c.Kube.FeatureGates)) {
		why, known := gates[name]
		switch {
		case known && why == "":
			continue
		case !known:
			why = "nothing depends on it"
		case name == gateIPVS && noIPVS:
			why = "it refuses the mode ipvs, in which kube-proxy would not start; the mode here is nftables"
		}
		c.addRemark("feature gate has no effect", c.fieldAttributes("featureGates."+name, "because", why)...)
	}
}
