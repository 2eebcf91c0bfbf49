package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/flowcontrol"
	componentconfig "k8s.io/component-base/config/v1alpha1"

	"github.com/nftproxy/nftproxy/internal/suggest"
)

// Access says where an API server is and how to talk to it.
type Access struct {
	componentconfig.ClientConnectionConfiguration
	// Master is the URL of the API server, in place of the one in the kubeconfig. Without both this is a pod.
	Master string
	// Context is the name of the context of the kubeconfig to use; empty: its current-context.
	Context   string
	UserAgent string
	// Dialer connects to the API server; nil: the one of the standard library.
	Dialer *Dialer
	// Selectors reports whether the selectors of Services are read, which only health checks need.
	Selectors bool
}

// Client reads the objects that a [Cluster] follows. It knows no other kinds: the
// clientset of client-go would link the kinds of all API groups, a third of the program.
type Client struct{ Services, Slices, Nodes, ServiceCIDRs Reader }

// Client returns a client. It does not connect yet.
func (a Access) Client(log *slog.Logger) (*Client, error) {
	return readyClient(&clients{access: a, log: log}, a.Selectors)
}

// ClientOf returns a client for a configuration, which it completes. It does not connect yet.
func ClientOf(config *rest.Config, selectors bool) (*Client, error) {
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return readyClient(&clients{shared: config}, selectors)
}

// Deferred returns a client that reads the kubeconfig when it is used first, and again
// until that succeeds: the file may not exist yet.
func (a Access) Deferred(log *slog.Logger) *Client {
	return newClient(&clients{access: a, log: log}, a.Selectors)
}

func readyClient(all *clients, selectors bool) (*Client, error) {
	c := newClient(all, selectors)
	_, err := all.ofGroup(corev1.SchemeGroupVersion)
	return c, err
}

func newClient(all *clients, selectors bool) *Client {
	all.addKinds(map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion:       {&corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{}},
		discoveryv1.SchemeGroupVersion:  {&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
		networkingv1.SchemeGroupVersion: {&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}},
	})
	if selectors {
		all.unread = unreadWithSelectors
	}
	reader := func(version schema.GroupVersion, name, kind string, object message) Reader {
		decoder := serializer.NewCodecFactory(all.scheme).UniversalDeserializer()
		return &resource{all, version, name, kind, object, all.unread[kind], decoder}
	}
	return &Client{
		Services:     reader(corev1.SchemeGroupVersion, "services", "Service", &corev1.Service{}),
		Slices:       reader(discoveryv1.SchemeGroupVersion, "endpointslices", "EndpointSlice", &discoveryv1.EndpointSlice{}),
		Nodes:        reader(corev1.SchemeGroupVersion, "nodes", "Node", &corev1.Node{}),
		ServiceCIDRs: reader(networkingv1.SchemeGroupVersion, "servicecidrs", "ServiceCIDR", &networkingv1.ServiceCIDR{}),
	}
}

// DeferredGroup returns a function that returns a client for objects of one API group, with
// a limit of requests of its own, once there is a kubeconfig. It does not connect yet.
func (a Access) DeferredGroup(log *slog.Logger, version schema.GroupVersion, kinds ...runtime.Object) func() (rest.Interface, error) {
	all := &clients{access: a, log: log}
	all.addKinds(map[schema.GroupVersion][]runtime.Object{version: kinds})
	return func() (rest.Interface, error) { return all.ofGroup(version) }
}

// clients has a client for each of some API groups, which share connections and the limit of requests. It is safe
// for concurrent use.
type clients struct {
	access Access
	log    *slog.Logger
	scheme *runtime.Scheme
	unread map[string]cuts // fields that are not decoded

	mu        sync.Mutex   // guards what follows
	shared    *rest.Config // nil: access has it
	transport *http.Client // nil: there was no config yet
	made      map[schema.GroupVersion]rest.Interface
}

func (c *clients) addKinds(kinds map[schema.GroupVersion][]runtime.Object) {
	c.scheme, c.unread, c.made = runtime.NewScheme(), unread, make(map[schema.GroupVersion]rest.Interface)
	for version, of := range kinds {
		c.scheme.AddKnownTypes(version, of...)
		metav1.AddToGroupVersion(c.scheme, version)
	}
	metav1.AddToGroupVersion(c.scheme, metav1.Unversioned) // errors
}

// ofGroup returns the client of a group, which it makes until that succeeds.
func (c *clients) ofGroup(version schema.GroupVersion) (client rest.Interface, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared == nil {
		if c.shared, err = c.access.restConfig(c.log); err != nil {
			return nil, err
		}
	}
	if c.transport == nil {
		if c.transport, err = rest.HTTPClientFor(c.shared); err != nil {
			return nil, fmt.Errorf("prepare client of the API server: %w", err)
		}
	}
	if c.made[version] == nil {
		of := rest.CopyConfig(c.shared)
		of.GroupVersion, of.APIPath = &version, "/apis"
		if version.Group == "" {
			of.APIPath = "/api"
		}
		of.NegotiatedSerializer = trimming{serializer.NewCodecFactory(c.scheme).WithoutConversion(), c.unread}
		made, err := rest.RESTClientForConfigAndClient(of, c.transport)
		if err != nil {
			return nil, fmt.Errorf("prepare client of the API server: %w", err)
		}
		c.made[version] = made
	}
	return c.made[version], nil
}

func (a Access) restConfig(log *slog.Logger) (*rest.Config, error) {
	c, err := a.readConfig()
	if err != nil {
		return nil, err
	}
	c.ContentType, c.AcceptContentTypes = a.ContentType, a.AcceptContentTypes
	if c.AcceptContentTypes == "" && c.ContentType == runtime.ContentTypeProtobuf {
		c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	c.QPS, c.Burst = a.QPS, int(a.Burst)
	if c.QPS > 0 {
		if c.Burst <= 0 {
			return nil, fmt.Errorf("prepare client of the API server: burst is %d: it must be positive where qps is set", c.Burst)
		}
		c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, c.Burst)
	}
	c.UserAgent = a.UserAgent
	if a.Dialer != nil {
		c.Dial = a.Dialer.DialContext
	}
	c.Wrap(endSilence(maxSilence, log))
	c.Wrap(resumeWatches)
	return c, nil
}

// Check returns an error if there can be no client.
func (a Access) Check() error {
	_, err := a.readConfig()
	return err
}

func (a Access) readConfig() (*rest.Config, error) {
	if a.Kubeconfig == "" && a.Master == "" {
		return podConfig()
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: a.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: a.Context, ClusterInfo: clientcmdapi.Cluster{Server: a.Master}}).ClientConfig()
	switch {
	case err == nil:
		return config, nil
	case a.Kubeconfig == "":
		return nil, fmt.Errorf("--master: %w: write it like https://10.0.0.1:6443", err)
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("--kubeconfig: %s names no API server: set current-context to a context with a cluster, or give --master", a.Kubeconfig)
	}
	if names := Contexts(a.Kubeconfig); a.Context != "" && len(names) > 0 && !slices.Contains(names, a.Context) {
		return nil, fmt.Errorf("--context: %s has no context %q%s", a.Kubeconfig, a.Context, suggest.DidYouMean(suggest.Similar(a.Context, names)))
	}
	return nil, fmt.Errorf("--kubeconfig: %w: name a file that kubectl can use", err)
}

// Contexts returns the names of the contexts of a kubeconfig, sorted; "" means those that
// kubectl uses. Without a file there are none.
func Contexts(kubeconfig string) []string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := rules.Load()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(config.Contexts))
}

func podConfig() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("no API server: name a file with --kubeconfig; without it nftproxy must run in a pod, where KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are set")
	case err != nil:
		return nil, fmt.Errorf("use the service account of the pod: %w: mount its token, or name a file with --kubeconfig", err)
	}
	return config, nil
}

// Pod says where a pod runs, and its addresses.
type Pod struct {
	Node      string
	Hosts     []netip.Addr // addresses of the node
	Addresses []netip.Addr // none: it has not started
}

// Pod asks the API server about a pod, which needs the permission to get it.
func (a Access) Pod(ctx context.Context, log *slog.Logger, namespace, name string) (p Pod, err error) {
	client, err := a.DeferredGroup(log, corev1.SchemeGroupVersion, &corev1.Pod{})()
	if err != nil {
		return p, err
	}
	body, err := client.Get().AbsPath("/api/v1/namespaces/"+namespace+"/pods/"+name).SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return p, fmt.Errorf("get pod %s/%s: the API server has none of this name", namespace, name)
	case err != nil:
		return p, fmt.Errorf("get pod %s/%s: %w", namespace, name, err)
	}
	var pod struct {
		Spec   struct{ NodeName string }
		Status struct{ HostIPs, PodIPs []struct{ IP netip.Addr } }
	}
	if err := json.Unmarshal(body, &pod); err != nil {
		return p, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	p.Node = pod.Spec.NodeName
	for _, ip := range pod.Status.HostIPs {
		p.Hosts = append(p.Hosts, ip.IP)
	}
	for _, ip := range pod.Status.PodIPs {
		p.Addresses = append(p.Addresses, ip.IP)
	}
	return p, nil
}
