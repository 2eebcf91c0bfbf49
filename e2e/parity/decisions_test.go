package parity

const (
	ofLibraries = "of libraries that nftproxy does not have"
	ofPolicy    = "policies are those for connections of the node, as in mode `iptables` ([6.17](behaviour.md#s6.17))"
)

// decisions are the reasons for differences, by table and row; a name that ends with "*" is a
// prefix.
var decisions = map[string]string{
	"configuration: mode":          "there is no other mode; the configuration of a cluster works as it is ([12.8](behaviour.md#s12.8))",
	"events: KubeProxyDefaultMode": "there is no default mode that changes",
	"events: IPVSDeprecation":      "there is no mode `ipvs`",

	"metrics: aggregator_*":               ofLibraries,
	"metrics: apiserver_*":                ofLibraries,
	"metrics: cardinality_*":              ofLibraries,
	"metrics: disabled_metrics_total":     "no metric is disabled ([11.9](behaviour.md#s11.9))",
	"metrics: hidden_metrics_total":       "no metric is hidden ([11.9](behaviour.md#s11.9))",
	"metrics: registered_metrics_total":   "a count of metrics says nothing about a node ([11.9](behaviour.md#s11.9))",
	"metrics: kubernetes_feature_enabled": "most gates have no effect ([11.9](behaviour.md#s11.9))",
	"metrics: rest_client_exec_plugin_*":  "the log and the status report credentials that cannot be used",
	"metrics: rest_client_transport_*":    "there is one connection to the API server",
	"metrics: kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total": "0 before the first failure, when kube-proxy has no series",
	"metrics: kubeproxy_nftables_localhost_nodeport_rejected_packets_total":           "no rule rejects such packets: the kernel does, unless a program listens there ([6.21](behaviour.md#s6.21))",

	"flows: external policy Local, NodePort on localhost, from the node, TCP":                      ofPolicy,
	"flows: external policy Local, endpoints elsewhere, NodePort on localhost, from the node, TCP": ofPolicy,
}
