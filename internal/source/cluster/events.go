package cluster

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Counts describes the work of a [Cluster].
type Counts struct {
	// Services and Slices are the events of objects so far, those that changed
	// nothing included (11.6).
	Services, Slices uint64
	// PendingServices and PendingSlices are the objects that have changed since
	// the last Load.
	PendingServices, PendingSlices int
	// Rejected are the objects in which something cannot be used.
	Rejected int
}

// events are the events since the last Load, and some totals since the start.
type events struct {
	services, slices uint64
	pendingServices  map[cache.ObjectName]struct{}
	pendingSlices    map[cache.ObjectName]struct{}
	triggers         map[model.ServiceName][]model.Trigger
}

// load forgets the pending changes and returns the triggers. It makes new maps: a cleared
// map keeps its memory.
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

// sliceSeen counts, notes what changes, and collects triggers: several of one
// Service add up until the next Load; a deletion discards them. Those from
// before the start say nothing about this process (11.7).
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
