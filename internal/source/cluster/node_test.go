package cluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestClusterNodeSaysLess: 12.53, 12.54. Addresses and pod ranges that a Node has
// lost stay in use until it has others of the same family, whether it was changed
// or created again. The log says so once, and when it is over.
func TestClusterNodeSaysLess(t *testing.T) {
	node := func(addresses, podCIDRs string) *corev1.Node {
		var list []string
		for _, a := range strings.Fields(addresses) {
			list = append(list, fmt.Sprintf("{type: InternalIP, address: %q}", a))
		}
		return sourcetest.Read[corev1.Node](t, fmt.Sprintf(`{metadata: {name: n1}, spec: {podCIDRs: [%s]}, status: {addresses: [%s]}}`,
			strings.ReplaceAll(podCIDRs, " ", ", "), strings.Join(list, ", ")))
	}
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("created again %t", again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := syncedLab(t)
				for _, step := range []struct {
					name, addresses, podCIDRs string
					want                      string
					lost, complete            int // lines of the log so far
				}{
					{"nothing known yet", "", "", "[] []", 0, 0},
					{"both families", "10.0.0.1 10.0.0.9 fd00::1", "10.128.0.0/24 fd00:128::/64", "[10.0.0.1 10.0.0.9 fd00::1] [10.128.0.0/24 fd00:128::/64]", 0, 0},
					{"nothing", "", "", "[10.0.0.1 10.0.0.9 fd00::1] [10.128.0.0/24 fd00:128::/64]", 1, 0},
					{"still nothing", "", "", "[10.0.0.1 10.0.0.9 fd00::1] [10.128.0.0/24 fd00:128::/64]", 1, 0},
					{"complete, and other ones", "10.0.0.2 fd00::2", "10.129.0.0/24 fd00:129::/64", "[10.0.0.2 fd00::2] [10.129.0.0/24 fd00:129::/64]", 1, 1},
					{"a family is gone", "10.0.0.3", "10.129.0.0/24", "[10.0.0.3 fd00::2] [10.129.0.0/24 fd00:129::/64]", 2, 1},
					{"the other family is gone", "fd00::3", "fd00:129::/64", "[fd00::3 10.0.0.3] [fd00:129::/64 10.129.0.0/24]", 3, 1},
					{"no addresses that can be used", "x", "fd00:129::/64 10.130.0.0/24", "[fd00::3 10.0.0.3] [fd00:129::/64 10.130.0.0/24]", 4, 1},
					{"complete", "10.0.0.1 fd00::1", "10.128.0.0/24 fd00:128::/64", "[10.0.0.1 fd00::1] [10.128.0.0/24 fd00:128::/64]", 4, 2},
				} {
					if again && l.Node() != nil {
						check(t, l.nodes.Delete(node("", "")))
					}
					check(t, l.nodes.Replace([]any{node(step.addresses, step.podCIDRs)}, "1"))
					u, err := l.Load()
					check(t, err)
					for where, n := range map[string]any{
						"Node":   fmt.Sprint(l.Node().Addresses, l.Node().PodCIDRs),
						"Update": fmt.Sprint(u.Nodes[0].Addresses, u.Nodes[0].PodCIDRs),
					} {
						if n != step.want {
							t.Errorf("%s: %s has %s, want %s", step.name, where, n, step.want)
						}
					}
					l.logged(step.lost, "the last known ones stay in use", "n1")
					l.logged(step.complete, "the Node is complete again", "n1")
				}
			})
		})
	}
}

// TestClusterNodeSaysMore: everything else in a Node that has lost its addresses is
// taken as it is.
func TestClusterNodeSaysMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := syncedLab(t)
		check(t, l.nodes.Add(sourcetest.Read[corev1.Node](t, nodeSecondYAML)))
		check(t, l.nodes.Add(sourcetest.Read[corev1.Node](t, `{metadata: {name: n1}, spec: {taints: [{key: ToBeDeletedByClusterAutoscaler}]}}`)))
		if n := l.Node(); !n.Leaving || n.Zone != "" || len(n.Addresses) != 1 {
			t.Errorf("the Node is %+v", n)
		}
	})
}
