package agent

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// clusterLab is an agent on the real kernel that follows a fake API server. It
// lives in a bubble; the test asks for the syncs.
type clusterLab struct {
	*workshop
	*rand.Rand
	t       *testing.T
	api     *fake.Clientset
	cluster *cluster.Cluster

	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	cidrs    map[string]*networkingv1.ServiceCIDR
	// known is what the Node objects so far say of the node.
	known *model.Node
}

func newClusterLab(t *testing.T, w *workshop, seed uint64, objects ...runtime.Object) *clusterLab {
	// The second handler slows errors down by a clock that all bubbles share.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	l := &clusterLab{
		workshop: w, t: t, Rand: rand.New(rand.NewPCG(seed, 0)), api: fake.NewSimpleClientset(objects...),
		services: make(map[string]*corev1.Service), slices: make(map[string]*discoveryv1.EndpointSlice), cidrs: make(map[string]*networkingv1.ServiceCIDR),
	}
	l.cluster = cluster.New(clientOf(l.api), cluster.Config{NodeConfig: model.Config{NodeName: "node-1"}, Log: slog.New(slog.NewTextHandler(w.log, nil))})
	l.Node.DetectLocal = model.DetectNodeCIDR
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.cluster.Run(ctx, func() {})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return l
}

// clientOf returns a client for a fake API server.
func clientOf(api kubernetes.Interface) *cluster.Client {
	return &cluster.Client{
		Services:     sourcetest.ReaderOf(api.CoreV1().Services(metav1.NamespaceAll)),
		Slices:       sourcetest.ReaderOf(api.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)),
		Nodes:        sourcetest.ReaderOf(api.CoreV1().Nodes()),
		ServiceCIDRs: sourcetest.ReaderOf(api.NetworkingV1().ServiceCIDRs()),
	}
}

// next has the agent take up what has changed in the API server.
func (l *clusterLab) next(cause Cause) *Sync {
	l.t.Helper()
	synctest.Wait()
	u, err := l.cluster.Load()
	if err != nil {
		l.t.Fatal(err)
	}
	l.pending.update = l.pending.update.Then(u)
	if !l.sync(cause) {
		l.t.Fatalf("sync failed: %v\n%s", l.syncs[len(l.syncs)-1].Err, l.log)
	}
	return l.syncs[len(l.syncs)-1]
}

// put creates or updates an object.
func put[O metav1.Object](t *testing.T, o O, create, update func(context.Context, O) error) {
	t.Helper()
	err := create(t.Context(), o)
	if apierrors.IsAlreadyExists(err) {
		err = update(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (l *clusterLab) putService(s *corev1.Service) {
	l.services[s.Name] = s
	c := l.api.CoreV1().Services("default")
	put(l.t, s, func(ctx context.Context, s *corev1.Service) error {
		_, err := c.Create(ctx, s, metav1.CreateOptions{})
		return err
	},
		func(ctx context.Context, s *corev1.Service) error {
			_, err := c.Update(ctx, s, metav1.UpdateOptions{})
			return err
		})
}

func (l *clusterLab) putSlice(s *discoveryv1.EndpointSlice) {
	l.slices[s.Name] = s
	c := l.api.DiscoveryV1().EndpointSlices("default")
	put(l.t, s, func(ctx context.Context, s *discoveryv1.EndpointSlice) error {
		_, err := c.Create(ctx, s, metav1.CreateOptions{})
		return err
	},
		func(ctx context.Context, s *discoveryv1.EndpointSlice) error {
			_, err := c.Update(ctx, s, metav1.UpdateOptions{})
			return err
		})
}

func (l *clusterLab) putCIDR(name string, ranges ...string) {
	o := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: ranges}}
	l.cidrs[name] = o
	c := l.api.NetworkingV1().ServiceCIDRs()
	put(l.t, o, func(ctx context.Context, s *networkingv1.ServiceCIDR) error {
		_, err := c.Create(ctx, s, metav1.CreateOptions{})
		return err
	},
		func(ctx context.Context, s *networkingv1.ServiceCIDR) error {
			_, err := c.Update(ctx, s, metav1.UpdateOptions{})
			return err
		})
}

// putNode creates or updates the Node, and notes what is to be known of it from
// now on: what it does not say of a family stays as it was.
func (l *clusterLab) putNode(n *corev1.Node) {
	c := l.api.CoreV1().Nodes()
	put(l.t, n, func(ctx context.Context, n *corev1.Node) error {
		_, err := c.Create(ctx, n, metav1.CreateOptions{})
		return err
	},
		func(ctx context.Context, n *corev1.Node) error {
			_, err := c.Update(ctx, n, metav1.UpdateOptions{})
			return err
		})
	now, _ := convert.Node(n)
	if l.known != nil {
		now.Addresses = keep(now.Addresses, l.known.Addresses, netip.Addr.Is4)
		now.PodCIDRs = keep(now.PodCIDRs, l.known.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Is4() })
	}
	l.known = now
}

// keep adds to now the values of known of a family that now has none of.
func keep[T any](now, known []T, is4 func(T) bool) []T {
	v4 := slices.ContainsFunc(now, is4)
	v6 := slices.ContainsFunc(now, func(v T) bool { return !is4(v) })
	for _, k := range known {
		if is4(k) && !v4 || !is4(k) && !v6 {
			now = append(now, k)
		}
	}
	return now
}

func apiService(i int, port int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("service-%d", i)}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: fmt.Sprintf("10.96.0.%d", i+1), IPFamilies: []corev1.IPFamily{"IPv4", "IPv6"},
		Ports: []corev1.ServicePort{{Protocol: "TCP", Port: port, NodePort: int32(30000 + i)}},
	}}
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP, fmt.Sprintf("fd00:96::%x", i+1)}
	return s
}

func apiSlice(i, first, endpoints int) *discoveryv1.EndpointSlice {
	name, port := "", int32(8080)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("slice-%d", i),
			Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("service-%d", i)}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for e := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.%d.%d", i, first+e)}})
	}
	return s
}

func apiNode(podCIDRs []string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// TestSeveralServiceCIDRs: 13.12, 13.15. Whatever number of ServiceCIDRs there
// is, the change of an endpoint costs what it changes.
func TestSeveralServiceCIDRs(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := newWorkshop(t, netlab.TestNamespace(t))
			synctest.Test(t, func(t *testing.T) {
				l := newClusterLab(t, w, 0)
				for i := range n {
					l.putCIDR(fmt.Sprintf("range-%d", i), fmt.Sprintf("10.%d.0.0/16", 112-i), fmt.Sprintf("fd00:%x::/112", 112-i))
				}
				l.putService(apiService(0, 80))
				l.next(Start)
				full := 0
				for i := range 20 {
					l.putSlice(apiSlice(0, i+1, 1))
					s := l.next(Change)
					if s.Compared {
						full++
					}
					if s.Plan.Empty() {
						t.Errorf("change %d changes nothing", i)
					}
				}
				if full != 0 {
					t.Errorf("%d ServiceCIDRs: %d of 20 changes of one endpoint are full syncs", n, full)
				}
			})
		})
	}
}
