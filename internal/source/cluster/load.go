package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Load returns the changes since the last call, the first time everything. It is an error before Await returns nil.
// An update includes the triggers since the last one.
func (c *Cluster) Load() (*model.Update, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkSynced(); err != nil {
		return nil, err
	}
	u := &model.Update{Services: c.changes, Nodes: c.nodeList(), ServiceCIDRs: c.serviceRanges(), Triggers: c.events.load()}
	if u.Services == nil {
		u.Services = make(map[model.ServiceName]model.ServiceState, len(c.services.objects))
		for name := range c.services.objects {
			u.Services[model.ServiceName(name)] = model.ServiceState{}
		}
	}
	for name := range u.Services {
		u.Services[name] = c.currentState(name)
	}
	c.changes = make(map[model.ServiceName]model.ServiceState)
	return u, nil
}

// currentState returns the state of a Service. The caller holds the lock.
func (c *Cluster) currentState(name model.ServiceName) model.ServiceState {
	return model.ServiceState{Service: c.services.objects[cache.ObjectName(name)], Slices: c.endpoints[name]}
}

// ServiceState returns the state of a Service, which the next update may still report.
func (c *Cluster) ServiceState(name model.ServiceName) model.ServiceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.currentState(name)
}

// Lookup implements [source.Source]. The next Load may still report the same states.
func (c *Cluster) Lookup(names []model.ServiceName) map[model.ServiceName]model.ServiceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	if names == nil {
		for name := range c.services.objects {
			names = append(names, model.ServiceName(name))
		}
	}
	out := make(map[model.ServiceName]model.ServiceState, len(names))
	for _, name := range names {
		if s := c.currentState(name); s.Service != nil {
			out[name] = s
		}
	}
	return out
}

// Snapshot returns the current state of the cluster, without an effect on Load. Its objects are shared: they must
// not be changed. It is an error before Await returns nil.
func (c *Cluster) Snapshot() (*model.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkSynced(); err != nil {
		return nil, err
	}
	return &model.Snapshot{
		Nodes:        c.nodeList(),
		Services:     c.services.values(),
		Slices:       c.slices.values(),
		ServiceCIDRs: c.serviceRanges(),
	}, nil
}

func (c *Cluster) checkSynced() error {
	if !c.synced {
		return errors.New("read cluster: the API server has not listed all Services and EndpointSlices yet")
	}
	return nil
}

// nodeList returns the Node; its last state stays in use (12.54).
func (c *Cluster) nodeList() []*model.Node {
	if c.lastNode == nil {
		return nil
	}
	return []*model.Node{c.lastNode}
}

// serviceRanges returns the union of the ServiceCIDRs (13.9). It depends neither on the order of a map nor on which
// object has a range: the agent compares all rules when it changes.
func (c *Cluster) serviceRanges() []netip.Prefix {
	var out []netip.Prefix
	for _, ranges := range c.cidrs.objects {
		out = append(out, *ranges...)
	}
	return model.MergePrefixes(out)
}

func (c *Cluster) serviceChanged(name model.ServiceName) {
	if c.changes != nil {
		c.changes[name] = model.ServiceState{}
	}
}

// sliceChanged keeps the index of slices. One that has another Service now changes both.
func (c *Cluster) sliceChanged(old, now *model.EndpointSlice) {
	if old != nil {
		c.endpoints.remove(old)
		c.serviceChanged(old.ServiceName())
	}
	if now != nil {
		c.endpoints.add(now)
		c.serviceChanged(now.ServiceName())
	}
}

// sliceIndex has the EndpointSlices of each Service, sorted by name. Updates share
// its lists, so a list is replaced and never changed.
type sliceIndex map[model.ServiceName][]*model.EndpointSlice

func (x sliceIndex) add(s *model.EndpointSlice) {
	all := x[s.ServiceName()]
	i, _ := slices.BinarySearchFunc(all, s, func(a, b *model.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	x[s.ServiceName()] = slices.Concat(all[:i], []*model.EndpointSlice{s}, all[i:])
}

func (x sliceIndex) remove(s *model.EndpointSlice) {
	all := x[s.ServiceName()]
	if len(all) == 1 {
		delete(x, s.ServiceName())
		return
	}
	i := slices.Index(all, s)
	x[s.ServiceName()] = slices.Concat(all[:i], all[i+1:])
}

// nodeSeen stores a version of the Node. A Node that is created again has no addresses until the cloud controller
// manager gives it some, and no podCIDRs until the controller manager does. The machine has not changed, so the
// last known ones of a family stay in use until the Node has others (12.54).
func (c *Cluster) nodeSeen(e event[model.Node]) {
	if e.now == nil {
		return
	}
	node := *e.now
	var addresses []netip.Addr
	var podCIDRs []netip.Prefix
	if c.lastNode != nil {
		addresses = missingFamilies(c.lastNode.Addresses, node.Addresses, model.FamilyOf)
		podCIDRs = missingFamilies(c.lastNode.PodCIDRs, node.PodCIDRs, func(p netip.Prefix) model.Family { return model.FamilyOf(p.Addr()) })
	}
	node.Addresses = slices.Concat(node.Addresses, addresses)
	node.PodCIDRs = slices.Concat(node.PodCIDRs, podCIDRs)
	c.lastNode = &node
	c.reportKept(addresses, podCIDRs)
}

// missingFamilies returns the values of known that have no counterpart of the same family in now.
func missingFamilies[T any](known, now []T, family func(T) model.Family) []T {
	return slices.DeleteFunc(slices.Clone(known), func(k T) bool {
		return slices.ContainsFunc(now, func(n T) bool { return family(n) == family(k) })
	})
}

// reportKept logs addresses and ranges that stay in use although the Node no longer has them, once per change.
func (c *Cluster) reportKept(addresses []netip.Addr, podCIDRs []netip.Prefix) {
	kept := ""
	if len(addresses) > 0 || len(podCIDRs) > 0 {
		kept = fmt.Sprint(addresses, podCIDRs)
	}
	switch {
	case kept == c.keptOfNode:
	case kept == "":
		c.Log.Info("the Node is complete again", "node", c.lastNode.Name)
	default:
		c.Log.Warn("the Node has lost addresses or podCIDRs; the last known ones stay in use until it has some again",
			"node", c.lastNode.Name, "addresses", addresses, "podCIDRs", podCIDRs)
	}
	c.keptOfNode = kept
}

// Counts describes the work of a [Cluster].
type Counts struct {
	// Services and Slices are the events of objects so far, those that changed nothing included (11.6).
	Services, Slices uint64
	// PendingServices and PendingSlices are the objects that have changed since the last Load.
	PendingServices, PendingSlices int
	// Rejected are the objects in which something cannot be used.
	Rejected int
}

type events struct {
	services, slices uint64
	pendingServices  map[cache.ObjectName]struct{}
	pendingSlices    map[cache.ObjectName]struct{}
	triggers         map[model.ServiceName][]model.Trigger
}

// load forgets the pending changes and returns the triggers. It makes new maps: a cleared map keeps its memory.
func (e *events) load() []model.Trigger {
	out := slices.Concat(slices.Collect(maps.Values(e.triggers))...)
	e.pendingServices = make(map[cache.ObjectName]struct{})
	e.pendingSlices = make(map[cache.ObjectName]struct{})
	e.triggers = make(map[model.ServiceName][]model.Trigger)
	return out
}

// Counts returns the amount of work.
func (c *Cluster) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := Counts{
		Services: c.events.services, Slices: c.events.slices,
		PendingServices: len(c.events.pendingServices), PendingSlices: len(c.events.pendingSlices),
	}
	for _, r := range c.all() {
		out.Rejected += len(r.found)
	}
	return out
}

func (c *Cluster) serviceSeen(e event[model.Service]) {
	c.events.services++
	if e.differs {
		c.events.pendingServices[e.name] = struct{}{}
		c.serviceChanged(model.ServiceName(e.name))
	}
}

// sliceSeen counts, notes what changes, and collects triggers: several of one Service add up until the next Load; a
// deletion discards them. Those from before the start say nothing about this process (11.7).
func (c *Cluster) sliceSeen(e event[model.EndpointSlice]) {
	slice := e.now
	if slice == nil {
		slice = e.old
	}
	if slice == nil {
		return // of no usable family or name
	}
	c.events.slices++
	if !e.differs {
		return
	}
	c.events.pendingSlices[e.name] = struct{}{}
	c.sliceChanged(e.old, e.now)
	service := slice.ServiceName()
	switch {
	case e.gone:
		delete(c.events.triggers, service)
	case e.stamp.After(c.started):
		c.events.triggers[service] = append(c.events.triggers[service], model.Trigger{Family: slice.Family, Time: e.stamp})
	}
}

// triggerTime returns when the last change happened that the endpoints of a
// slice reflect, or the zero time if that is unknown.
func triggerTime(s *discoveryv1.EndpointSlice) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime])
	return t
}
