package main

import (
	"regexp"
	"strings"
)

// omission is why some tests are not run.
type omission struct {
	pattern *regexp.Regexp
	reason  string
}

type omissions []omission

// leftOut are the tests of sig-network that need what the cluster does not have,
// and those that have nothing to do with a service proxy.
var leftOut = omissions{
	{regexp.MustCompile(`NetworkPolicy|Network Policy`), "network policies are the CNI plugin's"},
	{regexp.MustCompile(`\[Feature:Ingress\]|\[Provider:GCE\]|\[Feature:KubeProxyDaemonSetMigration\]|\[Feature:KubeProxyNFAcct\]`), "needs Google's cloud, or kube-proxy's own DaemonSet"},
	{regexp.MustCompile(`\[Feature:SCTPConnectivity\]`), "the kernel has no SCTP sockets"},
	{regexp.MustCompile(`\[Feature:Networking-(IPv4|IPv6|DNS|Performance)\]|\[Feature:PerformanceDNS\]|configMap nameserver`), "needs the Internet, or measures something else"},
	{regexp.MustCompile(`\[Disruptive\]`), "needs SSH to the nodes"},
}

func (o omissions) pattern() string {
	var all []string
	for _, x := range o {
		all = append(all, x.pattern.String())
	}
	return strings.Join(all, "|")
}

// reason returns why a test is not run, or nothing.
func (o omissions) reason(test string) string {
	for _, x := range o {
		if x.pattern.MatchString(test) {
			return x.reason
		}
	}
	return ""
}
