// Package cluster follows a Kubernetes API server and keeps only the model values of its objects. Its [Client]
// reaches the server through a [Dialer], which does not depend on the rules.
package cluster

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/internal/loglimit"
	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

// Config says which objects of a cluster count.
type Config struct {
	// NodeConfig is the configuration of this node, which names the one Node that is read.
	NodeConfig model.Config
	// ProxyName is the value of the label service.kubernetes.io/service-proxy-name
	// of the Services that are read; empty: those without the label (1.1, 1.2).
	ProxyName string
	// HealthChecks reports whether Services of the API server may have health checks
	// (3.29). The client needs to read selectors then.
	HealthChecks bool
	// Delay is how long Run waits before it reads anything but the Node.
	Delay time.Duration
	// Log receives problems of objects and of the connection, each once;
	// client-go's own messages appear at the debug level.
	Log *slog.Logger
}

// Cluster is a [source.Source] that follows a Kubernetes API server. Objects become
// model values as they arrive and are not kept. Known objects stay in use while
// the server cannot be reached. Its methods are safe for concurrent use.
type Cluster struct {
	Config
	client *Client
	// ObjectLog receives the problems of objects, which have no limit in number.
	ObjectLog *slog.Logger

	services *store[*corev1.Service, model.Service]
	slices   *store[*discoveryv1.EndpointSlice, model.EndpointSlice]
	nodes    *store[*corev1.Node, model.Node]
	cidrs    *store[*networkingv1.ServiceCIDR, []netip.Prefix]

	started time.Time

	mu     sync.Mutex // guards the content of the stores, and what follows
	synced bool
	// lastEvent is the time of the last list or event.
	lastEvent time.Time
	changed   func()
	lastNode  *model.Node // also after the Node is gone (10.11)
	// keptOfNode lists what lastNode has and the Node no longer has; empty: nothing.
	keptOfNode string
	events     events
	// endpoints are the values of slices by their Service.
	endpoints sliceIndex
	// changes has the names of the next update; nil: of all Services.
	changes map[model.ServiceName]model.ServiceState
}

// New returns a source that reads through client once it is run.
func New(client *Client, config Config) *Cluster {
	c := &Cluster{
		Config: config, client: client, ObjectLog: loglimit.New(config.Log), changed: func() {}, started: time.Now(),
		endpoints: make(sliceIndex),
	}
	c.events.load()
	c.services = newStore[*corev1.Service, model.Service](c, "Service")
	c.slices = newStore[*discoveryv1.EndpointSlice, model.EndpointSlice](c, "EndpointSlice")
	c.nodes = newStore[*corev1.Node, model.Node](c, "Node")
	c.cidrs = newStore[*networkingv1.ServiceCIDR, []netip.Prefix](c, "ServiceCIDR")
	return c
}

// convertObject returns the value of the model for an object of the API server, and the time of the change that led to
// this version of it.
func (c *Cluster) convertObject(o metav1.Object) (value any, stamp time.Time, found []*manifest.FieldError) {
	switch o := o.(type) {
	case *corev1.Service:
		value, found = c.convertService(o)
	case *discoveryv1.EndpointSlice:
		stamp = triggerTime(o)
		value, found = convert.EndpointSlice(o)
	case *corev1.Node:
		value, found = convert.Node(o)
	case *networkingv1.ServiceCIDR:
		var ranges []netip.Prefix
		ranges, found = convert.ServiceCIDR(o)
		value = &ranges
	}
	return value, stamp, found
}

// objectSeen treats every event of an object. The caller holds the lock.
func (c *Cluster) objectSeen(e any) {
	switch e := e.(type) {
	case event[model.Service]:
		c.serviceSeen(e)
	case event[model.EndpointSlice]:
		c.sliceSeen(e)
	case event[model.Node]:
		c.nodeSeen(e)
	}
}

// convertService converts a Service of the API server, without what only files may ask for. It has no
// health check if the configuration does not admit one, or the Service has a selector: the readiness of
// pods is decided by their probes, which the kubelet makes.
func (c *Config) convertService(s *corev1.Service) (*model.Service, []*manifest.FieldError) {
	noCheck := ""
	switch {
	case !c.HealthChecks:
		noCheck = "has no effect on a Service of an API server unless nftproxy run has --health-checks"
	case len(s.Spec.Selector) > 0:
		noCheck = "has no effect on a Service with a selector: the readiness probes of its pods decide"
	}
	return convert.ServiceOfCluster(s, c.ProxyName, noCheck)
}

// String implements [source.Source].
func (c *Cluster) String() string { return "API server" }

// Run follows the API server until ctx ends. It calls changed once as soon as the Services and the EndpointSlices
// have been listed completely (13.1, 13.2), and then after every event that changes what Load returns (2.21, 13.6);
// the Node and the ServiceCIDRs may come before or after. Calls may overlap and delay further events: changed must
// be safe for concurrent use and quick. The error is always nil.
func (c *Cluster) Run(ctx context.Context, changed func()) error {
	c.mu.Lock()
	c.changed = changed
	c.mu.Unlock()
	var all sync.WaitGroup
	all.Go(func() { c.RunNode(ctx) })
	if parallel.Wait(ctx, c.Delay) {
		for _, r := range c.newReflectors() {
			all.Go(func() { r.RunWithContext(c.quietContext(ctx)) })
		}
	}
	all.Wait()
	return nil
}

// RunNode follows only the Node until ctx ends: the other objects of a large cluster cost the API server much.
func (c *Cluster) RunNode(ctx context.Context) {
	node := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, c.NodeConfig.NodeName).String()}
	newReflector(c.nodes, c.client.Nodes, node).RunWithContext(c.quietContext(ctx))
}

func (c *Cluster) quietContext(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(demoted{c.Log.Handler()}))
}

func (c *Cluster) newReflectors() []*cache.Reflector {
	services := metav1.ListOptions{LabelSelector: "!" + convert.LabelProxyName, FieldSelector: "spec.clusterIP!=" + corev1.ClusterIPNone}
	if c.ProxyName != "" {
		services.LabelSelector = labels.Set{convert.LabelProxyName: c.ProxyName}.String()
	}
	slices := metav1.ListOptions{LabelSelector: "!" + corev1.IsHeadlessService} // 2.1
	return []*cache.Reflector{
		newReflector(c.services, c.client.Services, services),
		newReflector(c.slices, c.client.Slices, slices),
		newReflector(c.cidrs, c.client.ServiceCIDRs, metav1.ListOptions{}),
	}
}

// Seen returns the newest resourceVersion of each kind of objects of Services that was seen, by the
// names of the kinds in URLs.
func (c *Cluster) Seen() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return map[string]string{"services": c.services.version, "endpointslices": c.slices.version}
}

// Node returns the Node as it was seen last, also if it is gone since (10.11), or nil.
func (c *Cluster) Node() *model.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastNode
}

// editState runs edit, which reports whether it changed the result of Load, and calls changed if it did.
func (c *Cluster) editState(edit func() bool) {
	c.mu.Lock()
	c.lastEvent = time.Now()
	notify := edit() && c.synced
	if !c.synced && c.services.complete && c.slices.complete {
		c.synced, notify = true, true
	}
	changed := c.changed
	c.mu.Unlock()
	if notify {
		changed()
	}
}

func newReflector[O metav1.Object, V any](s *store[O, V], r Reader, choice metav1.ListOptions) *cache.Reflector {
	listing := &s.listing
	watching := &s.watching
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			listing.beginRequest()
			o.Limit = 0 // in one part, and the first time the latest state: API servers from 1.31 on answer that from memory, too
			if o.ResourceVersion == "0" {
				o.ResourceVersion = ""
			}
			o.LabelSelector, o.FieldSelector = choice.LabelSelector, choice.FieldSelector
			all, err := s.listObjects(ctx, r, o)
			listing.endRequest(ctx, err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			watching.beginRequest()
			o.LabelSelector, o.FieldSelector = choice.LabelSelector, choice.FieldSelector
			w, err := r.Watch(ctx, o)
			if listFollows(err) {
				watching.noteAnswer()
			} else {
				watching.endRequest(ctx, err)
			}
			return w, err
		},
	}
	var example O
	return cache.NewReflectorWithOptions(unstreamed{lw}, example, s, cache.ReflectorOptions{Name: s.kind})
}

// unstreamed keeps a reflector from asking for a list as a stream of events. A stream needs less memory, but it is
// not compressed: a list takes an API server half the processor time, and a tenth of the bytes, which matters when
// all nodes start at the same time.
type unstreamed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported answers a question of reflectors.
func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

// listFollows reports whether the reflector follows a failed watch with a list
// immediately, because the version is too old. A real problem shows there.
func listFollows(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// demoted is a log for messages of reflectors. Their errors and warnings are part
// of normal operation; [access] logs what matters.
type demoted struct{ slog.Handler }

func (d demoted) Enabled(ctx context.Context, l slog.Level) bool {
	return d.Handler.Enabled(ctx, min(l, slog.LevelDebug))
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	if r.Level = min(r.Level, slog.LevelDebug); !d.Handler.Enabled(ctx, r.Level) {
		return nil // logr does not ask before it logs errors
	}
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }
