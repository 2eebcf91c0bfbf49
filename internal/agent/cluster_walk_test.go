package agent

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// step changes some objects at random: mostly endpoints, and now and then what
// all routes depend on.
func (l *clusterLab) step() {
	i := l.IntN(6)
	switch l.IntN(10) {
	case 0:
		l.removeOrPutCIDR(fmt.Sprintf("range-%d", l.IntN(5)))
	case 1:
		l.removeOrPutNode()
	case 2:
		if name := fmt.Sprintf("service-%d", i); i > 0 && l.services[name] != nil {
			remove(l.t, l.services, name, l.api.CoreV1().Services("default").Delete)
			break
		}
		l.putService(apiService(i, 80+int32(l.IntN(2))))
	case 3:
		if name := fmt.Sprintf("slice-%d", i); l.slices[name] != nil {
			remove(l.t, l.slices, name, l.api.DiscoveryV1().EndpointSlices("default").Delete)
		}
	default:
		l.putSlice(apiSlice(i, 1+l.IntN(3), l.IntN(4)))
	}
}

func remove[O any](t *testing.T, objects map[string]O, name string, from func(context.Context, string, metav1.DeleteOptions) error) {
	t.Helper()
	delete(objects, name)
	if err := from(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func (l *clusterLab) removeOrPutCIDR(name string) {
	if l.cidrs[name] != nil && l.IntN(3) == 0 {
		remove(l.t, l.cidrs, name, l.api.NetworkingV1().ServiceCIDRs().Delete)
		return
	}
	l.putCIDR(name, []string{"10.96.0.0/16", "10.97.0.0/16", "10.96.0.0/12", "fd00:96::/112"}[l.IntN(4)])
}

// removeOrPutNode deletes the Node or puts one in its place that may say less
// than the last one.
func (l *clusterLab) removeOrPutNode() {
	if l.IntN(3) == 0 {
		remove(l.t, map[string]int{}, "node-1", l.api.CoreV1().Nodes().Delete)
		return
	}
	n := apiNode([][]string{nil, {"10.128.0.0/24"}, {"10.128.0.0/24", "fd00:128::/64"}}[l.IntN(3)],
		[][]string{nil, {"192.0.2.1"}, {"fd00::1"}, {"192.0.2.1", "fd00::1"}, {"192.0.2.2", "192.0.2.1"}}[l.IntN(5)]...)
	if l.IntN(4) == 0 {
		n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
	}
	l.putNode(n)
}

// fresh is what the routes are after a start at this moment, by a process that
// knows of the Node what this one does.
func (l *clusterLab) fresh() *model.Routing {
	in := &model.Snapshot{}
	if l.known != nil {
		in.Nodes = []*model.Node{l.known}
	}
	for _, o := range l.services {
		s, _ := convert.Service(o, "")
		in.Services = append(in.Services, s)
	}
	for _, o := range l.slices {
		s, _ := convert.EndpointSlice(o)
		in.Slices = append(in.Slices, s)
	}
	for _, o := range l.cidrs {
		ranges, _ := convert.ServiceCIDR(o)
		in.ServiceCIDRs = append(in.ServiceCIDRs, ranges...)
	}
	return model.Resolve(in, l.Node)
}

// TestClusterWalk: 6.11, 12.53, 12.54, 13.12, 13.13. While endpoints change,
// ServiceCIDRs and Nodes come and go, and a Node may come back without what it
// said before. After each sync the kernel has the rules of a fresh start, and
// everything is compared only after something has changed on which all routes
// depend.
func TestClusterWalk(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorkshop(t, netlab.TestNamespace(t))
			synctest.Test(t, func(t *testing.T) {
				l := newClusterLab(t, w, seed)
				l.putService(apiService(0, 80)) // stays, for a family without Services is another matter
				l.putNode(apiNode(nil, "192.0.2.1"))
				l.next(Start)
				node, ranges := withoutLeaving(l.known), l.fresh().ServiceCIDRs
				full := 0
				for step := range 200 {
					for range 1 + l.IntN(2) {
						l.step()
					}
					s := l.next(Change)
					want := l.fresh()
					now := withoutLeaving(l.known)
					due := !reflect.DeepEqual(node, now) || !slices.Equal(ranges, want.ServiceCIDRs)
					node, ranges = now, want.ServiceCIDRs
					if s.Compared != due {
						t.Fatalf("step %d: compared: %t, want %t", step, s.Compared, due)
					}
					if s.Compared {
						full++
					}
					l.sameRules(step, want)
				}
				if full < 15 || full > 100 {
					t.Errorf("%d of 200 syncs are full: this is no test", full)
				}
			})
		})
	}
}

// withoutLeaving returns a Node as far as routes depend on it.
func withoutLeaving(n *model.Node) model.Node {
	out := *n
	out.Leaving = false
	return out
}

// sameRules compares the kernel with what a fresh start would make of it.
func (l *clusterLab) sameRules(step int, want *model.Routing) {
	l.t.Helper()
	current, _, err := l.kernel.Read()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, c := range plan.Diff(current, plan.Settle(current, render.Render(want))).WithoutIdleLanes().Changes {
		l.t.Fatalf("step %d: a fresh start does: %s", step, c.Text())
	}
}
