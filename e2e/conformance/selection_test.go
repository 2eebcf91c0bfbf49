package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
)

// TestSelection names tests as the release of Kubernetes does, which moves and
// renames its tags from one release to the next.
func TestSelection(t *testing.T) {
	all := []kubelets.Families{kubelets.IPv4, kubelets.IPv6, kubelets.DualStack}
	const cloud = "needs Google's cloud, or kube-proxy's own DaemonSet"
	for _, x := range []struct {
		test    string
		runs    []kubelets.Families
		omitted string // in IPv4's cluster
	}{
		{"DNS should provide DNS for the cluster [Provider:gce]", nil, cloud},
		{"DNS should provide DNS for the cluster [Conformance]", all, ""},
		{"KubeProxy should update metric for tracking accepted packets destined for localhost nodeports [Feature:KubeProxyNFAcct]", nil, cloud},
		{"Networking should recreate its iptables rules if they are deleted [Provider:gce,aws,local,azure] [Disruptive]", nil, "needs SSH to the nodes"},
		{"DefaultIngressClass should set default value on new IngressClass [Serial]", all[:1], ""},
		{"IngressClass should allow IngressClass to have Namespace-scoped parameters [Serial]", all[:1], ""},
		{"LocalhostNodePorts should proxy localhost NodePort traffic to backends across nodes [Feature:LocalhostNodePorts]", all, ""},
		{"LoadBalancers ExternalTrafficPolicy: Local [Feature:LoadBalancer] should only target nodes with endpoints [Slow]", all[:2], ""},
		{"LoadBalancers ExternalTrafficPolicy: Local [Feature:LoadBalancer] should work from pods [Slow]",
			[]kubelets.Families{kubelets.IPv4, kubelets.DualStack}, ""},
		{"[Feature:IPv6DualStack] should have at least one dual-stack node", all[2:], ""},
	} {
		name := "[sig-network] " + x.test
		if got := omitted(kubelets.IPv4).reason(name); got != x.omitted {
			t.Errorf("%s is omitted with the reason %q, want %q", x.test, got, x.omitted)
		}
		var runs []kubelets.Families
		for _, f := range all {
			if !regexp.MustCompile(omitted(f).pattern() + "|" + elsewhere(f)).MatchString(name) {
				runs = append(runs, f)
			}
		}
		if !slices.Equal(runs, x.runs) {
			t.Errorf("%s runs in the clusters %v, want %v", x.test, runs, x.runs)
		}
	}
}
