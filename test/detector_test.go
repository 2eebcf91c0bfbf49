package test

import (
	"slices"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// Variations of table 4-A.
var (
	// Everything to a ClusterIP is masqueraded.
	masqueradeAll = []row{
		{"ClusterIP", "Cluster", "cluster, masq", "cluster, masq", "cluster, masq", "cluster, masq"},
		{"ClusterIP", "Local", "local, masq", "local, masq", "local, masq", "local, masq"},
	}
	// No packet is known to come from a pod.
	noDetector = []row{
		{"ClusterIP", "Cluster", "cluster", "cluster", "cluster", "cluster"},
		{"ClusterIP", "Local", "local", "local", "local", "local"},
		{"external", "Local", "local", "cluster, masq", "local", "local"},
	}
	// The pods of this node are known to be pods, others count as outside.
	remoteOutside = []row{
		{"ClusterIP", "Cluster", "cluster, masq", "cluster, masq", "cluster", "cluster, masq"},
		{"ClusterIP", "Local", "local, masq", "local, masq", "local", "local, masq"},
		{"external", "Local", "local", "cluster, masq", "cluster", "local"},
	}
	// The pod of this node that dials is not among those known to be pods.
	podsOutside = []row{
		{"ClusterIP", "Cluster", "cluster, masq", "cluster, masq", "cluster, masq", "cluster, masq"},
		{"ClusterIP", "Local", "local, masq", "local, masq", "local, masq", "local, masq"},
		{"external", "Local", "local", "cluster, masq", "local", "local"},
	}
)

// Pod 2 dials; the names of links are those of the pods.
func TestDetectors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		flags []string
		table verdicts
	}{
		{"4.26, 8.4 masquerade-all", append([]string{"--masquerade-all"}, clusterCIDR...), tableA.with(masqueradeAll...)},
		{"4.27, 7.3 no detector", nil, tableA.with(noDetector...)},
		{"4.28 masquerade-all and no detector", []string{"--masquerade-all"}, tableA.with(noDetector...).with(masqueradeAll...)},
		{"7.4 ClusterCIDR with all pods", append([]string{"--detect-local-mode", "ClusterCIDR"}, clusterCIDR...), tableA},
		{"7.1 ClusterCIDR in the other order",
			[]string{"--cluster-cidr", netlab.ClusterCIDRv6.String() + "," + netlab.ClusterCIDRv4.String()}, tableA},
		{"7.4, 4.13 NodeCIDR", []string{"--detect-local-mode", "NodeCIDR"}, tableA.with(remoteOutside...)},
		{"7.5, 4.13 BridgeInterface", []string{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "pod-2"},
			tableA.with(remoteOutside...)},
		{"7.6 BridgeInterface with another name", []string{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "pod-"},
			tableA.with(podsOutside...)},
		{"7.6 BridgeInterface with too long a name",
			[]string{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "pod-2-and-more-than-15"},
			tableA.with(podsOutside...)},
		{"7.5, 4.13 InterfaceNamePrefix", []string{"--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "pod-"},
			tableA.with(remoteOutside...)},
		{"7.6 InterfaceNamePrefix with another name",
			[]string{"--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "od-"}, tableA.with(podsOutside...)},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newWideCluster(t, 3, 2)
			c.flags = test.flags
			c.verify(t, test.table, c.situations()[:3], model.Families[:]...)
		})
	}
}

// 7.2: a family of which no range is given has no detector.
func TestClusterCIDROfOneFamily(t *testing.T) {
	t.Parallel()
	for family, cidr := range map[model.Family]string{
		model.IPv4: netlab.ClusterCIDRv4.String(), model.IPv6: netlab.ClusterCIDRv6.String()} {
		t.Run(family.String(), func(t *testing.T) {
			c := newWideCluster(t, 3, 2)
			c.flags = []string{"--cluster-cidr", cidr}
			for _, f := range model.Families {
				table := tableA
				if f != family {
					table = tableA.with(noDetector...)
				}
				t.Run(f.String(), func(t *testing.T) { c.in(t).verify(t, table, c.situations()[:3], f) })
			}
		})
	}
}

// Switching the mode changes the rules in the kernel, and leaves nothing of the
// old ones.
func TestDetectorChanges(t *testing.T) {
	c := newWideCluster(t, 3, 2)
	for _, step := range []struct {
		name  string
		flags []string
		table verdicts
	}{
		{"ClusterCIDR", clusterCIDR, tableA},
		{"BridgeInterface", []string{"--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "pod-2"}, tableA.with(remoteOutside...)},
		{"masquerade-all", append([]string{"--masquerade-all"}, clusterCIDR...), tableA.with(masqueradeAll...)},
		{"no detector", nil, tableA.with(noDetector...)},
		{"ClusterCIDR again", clusterCIDR, tableA},
	} {
		t.Run(step.name, func(t *testing.T) {
			c := c.in(t)
			c.flags = step.flags
			c.verify(t, step.table, c.situations()[:3], model.Families[:]...)
		})
	}
}

// 4.19, 8.5: a pod that reaches itself sees the node, with any address, policy
// and mode.
func TestHairpin(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"with detector": clusterCIDR, "no detector": nil, "masquerade-all": {"--masquerade-all"}} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			c.flags = flags
			near := service{Name: "near", N: 1, Pods: c.Pods, Internal: "Local", External: "Local"}
			web := service{Name: "web", N: 2, Pods: c.Pods}
			c.apply(near, web)
			forEachFlow(t, func(t *testing.T, network string, family model.Family) {
				for _, s := range []service{near, web} {
					for kind, frontend := range s.frontends(c.Node, family) {
						if got := ask(t, c.Pods[0], network, frontend); got.Client != c.Gateway(c.Pods[0], family) {
							t.Errorf("%s of %s: the pod sees %s, want the node", kind, s.Name, got.Client)
						}
					}
				}
			})
		})
	}
}

// 4.20: connections that are not translated are not masqueraded.
func TestPodReachesPodsDirectly(t *testing.T) {
	c := newWideCluster(t, 2, 1)
	c.flags = []string{"--masquerade-all"}
	c.apply(service{Name: "web", N: 1, Pods: slices.Concat(c.Pods, c.Remote)})
	forEachFlow(t, func(t *testing.T, network string, family model.Family) {
		for _, to := range append(c.Remote, c.Pods[1]) {
			got := ask(t, c.Pods[0], network, endpointOf(to, family))
			if got.Client != c.Pods[0].Address(family) {
				t.Errorf("%s sees %s, want the client", to.Name, got.Client)
			}
		}
	})
}

// 7.1, 7.6, 7.7, 7.8: invalid settings for the detection of pods are errors.
func TestInvalidDetectors(t *testing.T) {
	c := newCluster(t, 0)
	c.write()
	for _, flags := range [][]string{
		{"--detect-local-mode", "nonsense"},
		{"--detect-local-mode", "BridgeInterface"},
		{"--detect-local-mode", "BridgeInterface", "--pod-interface-name-prefix", "pod-"},
		{"--detect-local-mode", "InterfaceNamePrefix"},
		{"--detect-local-mode", "InterfaceNamePrefix", "--pod-bridge-interface", "cbr0"},
		{"--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "pod*"},
		{"--cluster-cidr", "10.128.0.0/16, fd00:10:128::/48"},
		{"--cluster-cidr", "10.128.0.0/16,10.129.0.0/16"},
		{"--cluster-cidr", "10.128.0.0"},
	} {
		c.flags = flags
		c.mustRun(2, c.command("apply"))
	}
}

// 7.7: the setting of another mode is ignored.
func TestSettingOfOtherDetector(t *testing.T) {
	c := newWideCluster(t, 3, 2)
	c.flags = append([]string{"--pod-bridge-interface", "pod-0", "--pod-interface-name-prefix", "remote-"}, clusterCIDR...)
	c.verify(t, tableA, c.situations()[:3], model.Families[:]...)
}
