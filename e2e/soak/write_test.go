package soak

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
	"github.com/nftproxy/nftproxy/internal/testkit/await"
)

const (
	// soakWriters change objects at the same time.
	soakWriters = 8
	// writeWait is how long a request to the API server may take: on a busy machine it answers
	// late, and it does not answer at all while it is stopped.
	writeWait = 30 * time.Second
)

// changes are the random writes to the API server.
type changes struct {
	*soak
	gate    sync.RWMutex // held for reading by every change
	stop    chan struct{}
	running sync.WaitGroup

	mu    sync.Mutex
	count map[string]*changeCount
	last  map[string]string // refusals of the API server, by the kind of change
}

// changeCount is the record of a kind of changes: those that were made, refused
// by the API server, and lost because it was away.
type changeCount struct{ made, refused, lost int }

func newChanges(s *soak) *changes {
	return &changes{soak: s, stop: make(chan struct{}), count: map[string]*changeCount{}, last: map[string]string{}}
}

// writer makes one change after the other, at random.
type writer struct {
	random
	*changes
	number int
}

func (c *changes) writer(number int) *writer {
	return &writer{random{rand.New(rand.NewPCG(c.seed, uint64(number)+1))}, c, number}
}

// startChanges starts to change objects.
func (s *soak) startChanges() {
	c := newChanges(s)
	s.changes = c
	s.T.Cleanup(c.end)
	ticks := make(chan struct{})
	c.running.Go(func() {
		defer close(ticks)
		for range await.Ticks(c.stop, time.Second/time.Duration(s.rate)) {
			select {
			case ticks <- struct{}{}:
			case <-c.stop:
			}
		}
	})
	for w := range soakWriters {
		c.running.Go(func() {
			w := c.writer(w)
			for range ticks {
				c.gate.RLock()
				w.change()
				c.gate.RUnlock()
			}
		})
	}
}

// end ends the changes. They can be ended again.
func (c *changes) end() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.running.Wait()
}

// note records the result of a change.
func (c *changes) note(kind string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count[kind]
	if n == nil {
		n = &changeCount{}
		c.count[kind] = n
	}
	switch {
	case err == nil:
		n.made++
	case apierrors.IsInvalid(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		n.refused++
		c.last[kind] = err.Error()
	default:
		n.lost++
	}
}

// made returns the number of changes that the API server accepted.
func (c *changes) made() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range c.count {
		n += kind.made
	}
	return n
}

// String is a table.
func (c *changes) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var all changeCount
	fmt.Fprintln(w, "change\tmade\trefused by the API server\tlost, as it was away\t")
	for _, kind := range slices.Sorted(maps.Keys(c.count)) {
		n := c.count[kind]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.100s\n", kind, n.made, n.refused, n.lost, c.last[kind])
		all = changeCount{all.made + n.made, all.refused + n.refused, all.lost + n.lost}
	}
	fmt.Fprintf(w, "all\t%d\t%d\t%d\t\n", all.made, all.refused, all.lost)
	_ = w.Flush()
	return b.String()
}

// change makes one change. Each writer has Services of its own.
func (w *writer) change() {
	name := soakName(w.IntN(max(1, w.services/soakWriters))*soakWriters + w.number)
	switch n := w.IntN(100); {
	case w.oneIn(400): // causes a full comparison
		pick(w.random, w.setZone, w.serviceCIDR, w.serviceCIDR, w.otherNode)()
	case n < 50:
		w.changeSlice(name, pick(w.random, soakSlices...))
	case n < 80:
		w.changeService(name)
	case n < 85:
		w.deleteService(name)
	case n < 88:
		w.deleteSlice(pick(w.random, soakSlices...).name(name))
	case n < 92:
		w.deleteService(name)
		w.createService(name)
	default:
		w.setIngress(name)
	}
}

func (w *writer) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), writeWait)
}

// create creates a Service with its EndpointSlices.
func (w *writer) create(name string) {
	w.createService(name)
	for _, which := range soakSlices[:2] {
		w.createSlice(name, which)
	}
}

func (w *writer) createService(name string) {
	ctx, cancel := w.context()
	defer cancel()
	_, err := w.API.CoreV1().Services(testbed.Namespace).Create(ctx, w.newService(name), metav1.CreateOptions{})
	w.note("create a Service", err)
}

func (w *writer) createSlice(service string, which soakSlice) {
	ctx, cancel := w.context()
	defer cancel()
	_, err := w.API.DiscoveryV1().EndpointSlices(testbed.Namespace).Create(ctx, w.newSlice(service, which), metav1.CreateOptions{})
	w.note("create an EndpointSlice", err)
}

func (w *writer) changeService(name string) {
	ctx, cancel := w.context()
	defer cancel()
	services := w.API.CoreV1().Services(testbed.Namespace)
	s, err := services.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		w.createService(name)
		return
	}
	change := pick(w.random, serviceChanges...)
	if err == nil {
		change.change(w.random, s)
		_, err = services.Update(ctx, s, metav1.UpdateOptions{})
	}
	w.note(change.name, err)
}

func (w *writer) changeSlice(service string, which soakSlice) {
	ctx, cancel := w.context()
	defer cancel()
	slices := w.API.DiscoveryV1().EndpointSlices(testbed.Namespace)
	s, err := slices.Get(ctx, which.name(service), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		w.createSlice(service, which)
		return
	}
	change := pick(w.random, sliceChanges...)
	if err == nil {
		change.change(w.random, s)
		_, err = slices.Update(ctx, s, metav1.UpdateOptions{})
	}
	w.note(change.name, err)
}

func (w *writer) deleteService(name string) {
	ctx, cancel := w.context()
	defer cancel()
	w.note("delete a Service", w.API.CoreV1().Services(testbed.Namespace).Delete(ctx, name, metav1.DeleteOptions{}))
}

func (w *writer) deleteSlice(name string) {
	ctx, cancel := w.context()
	defer cancel()
	w.note("delete an EndpointSlice", w.API.DiscoveryV1().EndpointSlices(testbed.Namespace).Delete(ctx, name, metav1.DeleteOptions{}))
}

// setIngress does what the controller of a load balancer does.
func (w *writer) setIngress(name string) {
	ctx, cancel := w.context()
	defer cancel()
	services := w.API.CoreV1().Services(testbed.Namespace)
	s, err := services.Get(ctx, name, metav1.GetOptions{})
	if err == nil && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if err == nil {
		s.Status.LoadBalancer.Ingress = w.ingress()
		_, err = services.UpdateStatus(ctx, s, metav1.UpdateOptions{})
	}
	w.note("change what a load balancer says", err)
}

// setZone moves the node to another zone.
func (w *writer) setZone() {
	ctx, cancel := w.context()
	defer cancel()
	n, err := w.API.CoreV1().Nodes().Get(ctx, testbed.NodeName, metav1.GetOptions{})
	if err == nil {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[corev1.LabelTopologyZone] = pick(w.random, soakZones...)
		_, err = w.API.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
	}
	w.note("change the zone of the node", err)
}

// otherNode makes a node, or takes it away.
func (w *writer) otherNode() {
	ctx, cancel := w.context()
	defer cancel()
	nodes, name := w.API.CoreV1().Nodes(), fmt.Sprint("other-", w.number)
	_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = nodes.Delete(ctx, name, metav1.DeleteOptions{})
	}
	w.note("create or delete another node", err)
}

// serviceCIDR makes a range of ClusterIPs, or takes it away.
func (w *writer) serviceCIDR() {
	ctx, cancel := w.context()
	defer cancel()
	cidrs, name := w.API.NetworkingV1().ServiceCIDRs(), fmt.Sprint("range-", w.number)
	_, err := cidrs.Create(ctx, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{fmt.Sprintf("10.9%d.0.0/24", w.IntN(10)), "fd00:10:97::/120"}}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = cidrs.Delete(ctx, name, metav1.DeleteOptions{})
	}
	w.note("create or delete a ServiceCIDR", err)
}
