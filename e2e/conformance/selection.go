package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
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
	{regexp.MustCompile(`\[Provider:gce\]|\[Feature:KubeProxyNFAcct\]`), "needs Google's cloud, or kube-proxy's own DaemonSet"},
	{regexp.MustCompile(`\[Feature:SCTPConnectivity\]`), "the kernel has no SCTP sockets"},
	{regexp.MustCompile(`\[Feature:Networking-(IPv4|IPv6|DNS|Performance)\]|\[Feature:PerformanceDNS\]|configMap nameserver`), "needs the Internet, or measures something else"},
	{regexp.MustCompile(`\[Disruptive\]`), "needs SSH to the nodes"},
}

// ipv4Only are tests that split an address at its first colon, or write it into a
// URL without brackets: with IPv6 they fail whatever the proxy does.
var ipv4Only = omission{
	regexp.MustCompile(`should only allow access from service loadbalancer source ranges|ExternalTrafficPolicy: Local .* should work from pods`),
	"the test itself cannot handle an IPv6 address"}

// singleStack is a test that wants the health check of a Service of one family at
// the addresses of nodes of both. Neither proxy opens it there.
var singleStack = omission{
	regexp.MustCompile(`ExternalTrafficPolicy: Local .* should only target nodes with endpoints`),
	"the test expects a Service of one family to have health checks in both; it fails with kube-proxy as well"}

// omitted are the tests that no run, or none in these families, can pass.
func omitted(families kubelets.Families) omissions {
	all := slices.Clone(leftOut)
	if families == kubelets.IPv6 || families == kubelets.DualStackIPv6 {
		all = append(all, ipv4Only)
	}
	if families == kubelets.DualStack || families == kubelets.DualStackIPv6 {
		all = append(all, singleStack)
	}
	return all
}

// slow are the tests that take a quarter of an hour. Once is enough.
const slow = `should not have connectivity disruption during rolling update`

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

// elsewhere returns a pattern of the tests that run in another cluster: those of
// two families, and in clusters other than IPv4's those in which no packet is sent.
func elsewhere(families kubelets.Families) string {
	const (
		dualStack = `\[Feature:IPv6DualStack\]`
		noPackets = `Ingress API|IngressClass |EndpointSlice API|CIDRs|Endpoints should|EndpointsController|EndpointSliceMirroring|` +
			`API operations|should find a service|should complete a service status|should delete a collection of services|` +
			`should test the lifecycle of an Endpoint|should check NodePort out-of-range|should prevent NodePort collisions|` +
			`should provide secure master service|Service API|spec.Hostname|ServiceCIDR|endpoints latency`
	)
	switch families {
	case kubelets.IPv4:
		return dualStack
	case kubelets.IPv6:
		return dualStack + "|" + noPackets + "|" + slow
	default:
		return noPackets + "|" + slow
	}
}
