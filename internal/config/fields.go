package config

import (
	"fmt"
	"maps"
	"slices"
)

// fields maps flags to the fields of the file that mean the same.
var fields = map[string]string{
	"bind-address":                      "bindAddress",
	"bind-address-hard-fail":            "bindAddressHardFail",
	"cluster-cidr":                      "clusterCIDR",
	"config-sync-period":                "configSyncPeriod",
	"conntrack-max-per-core":            "conntrack.maxPerCore",
	"conntrack-min":                     "conntrack.min",
	"conntrack-tcp-be-liberal":          "conntrack.tcpBeLiberal",
	"conntrack-tcp-timeout-close-wait":  "conntrack.tcpCloseWaitTimeout",
	"conntrack-tcp-timeout-established": "conntrack.tcpEstablishedTimeout",
	"conntrack-udp-timeout":             "conntrack.udpTimeout",
	"conntrack-udp-timeout-stream":      "conntrack.udpStreamTimeout",
	"detect-local-mode":                 "detectLocalMode",
	"feature-gates":                     "featureGates",
	"healthz-bind-address":              "healthzBindAddress",
	"healthz-port":                      "healthzBindAddress",
	"hostname-override":                 "hostnameOverride",
	"iptables-localhost-nodeports":      "iptables.localhostNodePorts",
	"iptables-masquerade-bit":           "iptables.masqueradeBit",
	"iptables-min-sync-period":          "nftables.minSyncPeriod",
	"iptables-sync-period":              "nftables.syncPeriod",
	"ipvs-exclude-cidrs":                "ipvs.excludeCIDRs",
	"ipvs-min-sync-period":              "ipvs.minSyncPeriod",
	"ipvs-scheduler":                    "ipvs.scheduler",
	"ipvs-strict-arp":                   "ipvs.strictARP",
	"ipvs-sync-period":                  "ipvs.syncPeriod",
	"ipvs-tcp-timeout":                  "ipvs.tcpTimeout",
	"ipvs-tcpfin-timeout":               "ipvs.tcpFinTimeout",
	"ipvs-udp-timeout":                  "ipvs.udpTimeout",
	"kube-api-burst":                    "clientConnection.burst",
	"kube-api-content-type":             "clientConnection.contentType",
	"kube-api-qps":                      "clientConnection.qps",
	"kubeconfig":                        "clientConnection.kubeconfig",
	"log-flush-frequency":               "logging.flushFrequency",
	"log-json-info-buffer-size":         "logging.options.json.infoBufferSize",
	"log-json-split-stream":             "logging.options.json.splitStream",
	"log-text-info-buffer-size":         "logging.options.text.infoBufferSize",
	"log-text-split-stream":             "logging.options.text.splitStream",
	"logging-format":                    "logging.format",
	"masquerade-all":                    "nftables.masqueradeAll",
	"metrics-bind-address":              "metricsBindAddress",
	"metrics-port":                      "metricsBindAddress",
	"min-sync-period":                   "nftables.minSyncPeriod",
	"nodeport-addresses":                "nodePortAddresses",
	"oom-score-adj":                     "oomScoreAdj",
	"pod-bridge-interface":              "detectLocal.bridgeInterface",
	"pod-interface-name-prefix":         "detectLocal.interfaceNamePrefix",
	"profiling":                         "enableProfiling",
	"proxy-mode":                        "mode",
	"show-hidden-metrics-for-version":   "showHiddenMetricsForVersion",
	"sync-period":                       "nftables.syncPeriod",
	"v":                                 "logging.verbosity",
	"vmodule":                           "logging.vmodule",
}

// otherNames are the flags that mean the same as one above.
var otherNames = []string{"healthz-port", "metrics-port", "iptables-sync-period", "iptables-min-sync-period"}

// flagOf returns the flag for a field; empty: there is none.
func flagOf(field string) string {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] == field && !slices.Contains(otherNames, name) {
			return "--" + name
		}
	}
	return ""
}

// problem returns an error about a field that names both the field and its
// flag, first the one that people used.
func (c *Config) problem(field, format string, args ...any) error {
	problem := fmt.Sprintf(format, args...)
	switch name := flagOf(field); {
	case c.File == nil && name != "":
		return fmt.Errorf("%s: %s (in a file: %s)", name, problem, field)
	case c.File == nil:
		return fmt.Errorf("%s: %s", field, problem)
	case name != "":
		return fmt.Errorf("%s: %s: %s (as a flag: %s)", c.File.Path, field, problem, name)
	}
	return fmt.Errorf("%s: %s: %s", c.File.Path, field, problem)
}
