package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

var _ source.Source = (*Cluster)(nil)

// The objects of the tests. The second versions differ in what matters.
const (
	webSecondYAML   = `{metadata: {namespace: a, name: web}, spec: {clusterIP: 10.96.0.1, ports: [{port: 81}]}}`
	sliceSecondYAML = `{metadata: {namespace: a, name: web-1, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{name: "", port: 8080}], endpoints: [{addresses: [10.128.0.2]}]}`
	nodeSecondYAML  = `{metadata: {name: n1, labels: {topology.kubernetes.io/zone: z1}}, status: {addresses: [{type: InternalIP, address: 10.0.0.1}]}}`
	cidrYAML        = `{metadata: {name: extra}, spec: {cidrs: [1.1.1.0/24]}}`
	cidrSecondYAML  = `{metadata: {name: extra}, spec: {cidrs: [4.4.4.0/24]}}`
)

// lab is a Cluster that follows a fake API server. It lives in a bubble.
type lab struct {
	*Cluster
	t     *testing.T
	api   *fake.Clientset
	calls atomic.Int32
	log   bytes.Buffer
}

func newLab(t *testing.T, config Config, objects ...runtime.Object) *lab {
	// The second handler slows errors down by a clock that all bubbles share.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	l := &lab{t: t, api: fake.NewSimpleClientset(objects...)}
	config.Log = slog.New(slog.NewTextHandler(&l.log, nil))
	l.Cluster = New(clientOf(l.api), config)
	return l
}

// clientOf returns a client for a fake API server.
func clientOf(api kubernetes.Interface) *Client {
	return &Client{
		Services:     sourcetest.ReaderOf(api.CoreV1().Services(metav1.NamespaceAll)),
		Slices:       sourcetest.ReaderOf(api.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)),
		Nodes:        sourcetest.ReaderOf(api.CoreV1().Nodes()),
		ServiceCIDRs: sourcetest.ReaderOf(api.NetworkingV1().ServiceCIDRs()),
	}
}

// start runs the Cluster until the end of the test.
func (l *lab) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx, func() { l.calls.Add(1) })
	}()
	l.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// notified checks how often changed was called since the last time.
func (l *lab) notified(want int32) {
	l.t.Helper()
	synctest.Wait()
	if got := l.calls.Swap(0); got != want {
		l.t.Errorf("changed was called %d times, want %d", got, want)
	}
}

// logged checks how many lines of the log hold all the words.
func (l *lab) logged(want int, words ...string) {
	l.t.Helper()
	synctest.Wait()
	sourcetest.CheckLog(l.t, l.log.String(), want, words...)
}

// loaded checks what Snapshot returns, by summary.
func (l *lab) loaded(want ...string) {
	l.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, summary(l.t, l.Cluster)); diff != "" {
		l.t.Errorf("snapshot (-want +got):\n%s", diff)
	}
}

// summary has a line for each object.
func summary(t *testing.T, c *Cluster) []string {
	t.Helper()
	s, err := c.Snapshot()
	check(t, err)
	var out []string
	for _, o := range s.Services {
		out = append(out, fmt.Sprintf("Service %s %v %d", o.Name, o.ClusterIPs, o.Ports[0].Port))
	}
	for _, o := range s.Slices {
		out = append(out, fmt.Sprintf("EndpointSlice %s/%s of %s at %s", o.Namespace, o.Name, o.Service, o.Hosts[0].Address))
	}
	for _, o := range s.Nodes {
		out = append(out, fmt.Sprintf("Node %s %v %s", o.Name, o.Addresses, o.Zone))
	}
	for _, r := range s.ServiceCIDRs {
		out = append(out, fmt.Sprintf("ServiceCIDR %s", r))
	}
	slices.Sort(out)
	return out
}

// TestClusterEvents follows objects of each kind through their lives; a
// ServiceCIDR counts immediately (13.8).
func TestClusterEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{NodeConfig: model.Config{NodeName: "n1"}}, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML), sourcetest.Read[discoveryv1.EndpointSlice](t, sourcetest.SliceYAML))
		l.start()
		check(t, l.waitSynced(t.Context()))
		check(t, l.nodes.wait(t.Context()))
		check(t, l.cidrs.wait(t.Context()))
		l.notified(1) // 13.2
		l.loaded("EndpointSlice a/web-1 of web at 10.128.0.1", "Service a/web [10.96.0.1] 80")

		services, endpoints := l.api.CoreV1().Services("a"), l.api.DiscoveryV1().EndpointSlices("a")
		nodes, cidrs := l.api.CoreV1().Nodes(), l.api.NetworkingV1().ServiceCIDRs()
		do := func(_ any, err error) {
			t.Helper()
			check(t, err)
			l.notified(1)
		}
		do(nodes.Create(t.Context(), sourcetest.Read[corev1.Node](t, sourcetest.NodeYAML), metav1.CreateOptions{}))
		do(cidrs.Create(t.Context(), sourcetest.Read[networkingv1.ServiceCIDR](t, cidrYAML), metav1.CreateOptions{}))
		l.loaded("EndpointSlice a/web-1 of web at 10.128.0.1", "Node n1 [10.0.0.1] ", "Service a/web [10.96.0.1] 80", "ServiceCIDR 1.1.1.0/24")
		do(services.Update(t.Context(), sourcetest.Read[corev1.Service](t, webSecondYAML), metav1.UpdateOptions{}))
		do(endpoints.Update(t.Context(), sourcetest.Read[discoveryv1.EndpointSlice](t, sliceSecondYAML), metav1.UpdateOptions{}))
		do(nodes.Update(t.Context(), sourcetest.Read[corev1.Node](t, nodeSecondYAML), metav1.UpdateOptions{}))
		do(cidrs.Update(t.Context(), sourcetest.Read[networkingv1.ServiceCIDR](t, cidrSecondYAML), metav1.UpdateOptions{}))
		l.loaded("EndpointSlice a/web-1 of web at 10.128.0.2", "Node n1 [10.0.0.1] z1", "Service a/web [10.96.0.1] 81", "ServiceCIDR 4.4.4.0/24")
		do(nil, services.Delete(t.Context(), "web", metav1.DeleteOptions{}))
		do(nil, endpoints.Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
		do(nil, nodes.Delete(t.Context(), "n1", metav1.DeleteOptions{}))
		do(nil, cidrs.Delete(t.Context(), "extra", metav1.DeleteOptions{}))
		l.loaded("Node n1 [10.0.0.1] z1") // as it was seen last (12.54)
		if l.log.Len() > 0 {
			t.Errorf("the log is not quiet:\n%s", l.log.String())
		}
	})
}

// TestClusterNamespaces has objects of equal names in two namespaces.
func TestClusterNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inB := func(text string) string {
			return strings.NewReplacer("namespace: a", "namespace: b", "10.96.0.1", "10.96.0.2", "10.128.0.1", "10.128.0.2").Replace(text)
		}
		l := newLab(t, Config{},
			sourcetest.Read[corev1.Service](t, sourcetest.WebYAML), sourcetest.Read[discoveryv1.EndpointSlice](t, sourcetest.SliceYAML),
			sourcetest.Read[corev1.Service](t, inB(sourcetest.WebYAML)), sourcetest.Read[discoveryv1.EndpointSlice](t, inB(sourcetest.SliceYAML)))
		l.start()
		a := []string{"EndpointSlice a/web-1 of web at 10.128.0.1", "Service a/web [10.96.0.1] 80"}
		b := []string{"EndpointSlice b/web-1 of web at 10.128.0.2", "Service b/web [10.96.0.2] 80"}
		l.loaded(a[0], b[0], a[1], b[1])
		check(t, l.api.CoreV1().Services("a").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		check(t, l.api.DiscoveryV1().EndpointSlices("a").Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
		l.loaded(b...)
	})
}

// TestClusterSelectors checks what the API server is asked for.
func TestClusterSelectors(t *testing.T) {
	for proxyName, label := range map[string]string{
		"":      "!service.kubernetes.io/service-proxy-name",      // 1.1
		"other": "service.kubernetes.io/service-proxy-name=other", // 1.2
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, Config{NodeConfig: model.Config{NodeName: "n1"}, ProxyName: proxyName})
			l.start()
			synctest.Wait()
			want := map[string]string{
				"services":       label + " spec.clusterIP!=None",
				"endpointslices": "!service.kubernetes.io/headless ", // 2.1
				"nodes":          " metadata.name=n1",
				"servicecidrs":   " ",
			}
			for _, verb := range []string{"list", "watch"} {
				if diff := cmp.Diff(want, asked(l.api.Actions(), verb)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", verb, diff)
				}
			}
		})
	}
}

// asked returns the label and field selectors by resource.
func asked(actions []kubetesting.Action, verb string) map[string]string {
	out := make(map[string]string)
	for _, a := range actions {
		switch a := a.(type) {
		case kubetesting.ListActionImpl:
			if verb == "list" {
				out[a.Resource.Resource] = a.ListOptions.LabelSelector + " " + a.ListOptions.FieldSelector
			}
		case kubetesting.WatchActionImpl:
			if verb == "watch" {
				out[a.Resource.Resource] = a.ListOptions.LabelSelector + " " + a.ListOptions.FieldSelector
			}
		}
	}
	return out
}

// TestClusterNotSynced names what is missing when the caller stops waiting.
func TestClusterNotSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLab(t, Config{}).Cluster
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for kind, wait := range map[string]func(context.Context) error{
			"Services": c.waitSynced, "Nodes": c.nodes.wait, "ServiceCIDRs": c.cidrs.wait,
		} {
			want := "wait for the " + kind + " of the cluster: context deadline exceeded"
			if err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if _, err := c.Load(); err == nil {
			t.Error("Load gives an update")
		}
		if _, err := c.Snapshot(); err == nil {
			t.Error("Snapshot gives a snapshot")
		}
	})
}
