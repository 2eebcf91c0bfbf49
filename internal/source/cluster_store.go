package source

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// clusterStore receives the API objects of one kind from a reflector and keeps
// the model values V that they become. Its reflector is the only writer.
type clusterStore[O metav1.Object, V any] struct {
	cluster *Cluster
	kind    string
	convert func(O) (*V, []*FieldError)

	objects  map[cache.ObjectName]*V
	complete bool          // listed once
	listed   chan struct{} // closed then

	found map[cache.ObjectName][]*FieldError // in the last version of each object
}

var _ cache.TransformingStore = (*clusterStore[metav1.Object, struct{}])(nil)

// converted is what remains of an API object.
type converted[V any] struct {
	name  cache.ObjectName
	value *V // nil: not used
	found []*FieldError
}

func newClusterStore[O metav1.Object, V any](c *Cluster, kind string, convert func(O) (*V, []*FieldError)) *clusterStore[O, V] {
	return &clusterStore[O, V]{
		cluster: c,
		kind:    kind,
		convert: convert,
		objects: make(map[cache.ObjectName]*V),
		listed:  make(chan struct{}),
		found:   make(map[cache.ObjectName][]*FieldError),
	}
}

// Transformer makes the reflector convert the objects of a streamed list one
// by one, so that the list never exists in full.
func (s *clusterStore[O, V]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.read(o) }
}

func (s *clusterStore[O, V]) read(o any) (converted[V], error) {
	switch o := o.(type) {
	case converted[V]:
		return o, nil
	case O:
		v, found := s.convert(o)
		return converted[V]{cache.MetaObjectToName(o), v, found}, nil
	}
	return converted[V]{}, fmt.Errorf("read %s: unexpected type %T", s.kind, o)
}

// Add takes a new object, or one that is known already.
func (s *clusterStore[O, V]) Add(o any) error {
	c, err := s.read(o)
	if err != nil {
		return err
	}
	s.report(c)
	s.note(s.found, c)
	s.cluster.change(func() bool {
		old := s.objects[c.name]
		put(s.objects, c)
		return !reflect.DeepEqual(old, c.value)
	})
	return nil
}

// Update takes a new version of an object.
func (s *clusterStore[O, V]) Update(o any) error { return s.Add(o) }

// Delete takes an object that is gone, or the tombstone of one (2.26).
func (s *clusterStore[O, V]) Delete(o any) error {
	name, err := cache.DeletionHandlingObjectToName(o)
	if err != nil {
		return fmt.Errorf("delete %s: %w", s.kind, err)
	}
	delete(s.found, name)
	s.cluster.change(func() bool {
		_, known := s.objects[name]
		delete(s.objects, name)
		return known
	})
	return nil
}

// Replace takes all objects that there are.
func (s *clusterStore[O, V]) Replace(list []any, _ string) error {
	objects := make(map[cache.ObjectName]*V, len(list))
	found := make(map[cache.ObjectName][]*FieldError)
	for _, o := range list {
		c, err := s.read(o)
		if err != nil {
			return err
		}
		s.report(c)
		s.note(found, c)
		put(objects, c)
	}
	s.found = found
	s.cluster.change(func() bool {
		differs := !maps.EqualFunc(s.objects, objects, func(a, b *V) bool { return reflect.DeepEqual(a, b) })
		s.objects = objects
		if !s.complete {
			s.complete = true
			close(s.listed)
		}
		return differs
	})
	return nil
}

// Resync does nothing: there is nobody to deliver to again.
func (s *clusterStore[O, V]) Resync() error { return nil }

func put[V any](objects map[cache.ObjectName]*V, c converted[V]) {
	if c.value == nil {
		delete(objects, c.name)
		return
	}
	objects[c.name] = c.value
}

// report logs what is wrong with an object, but not what was wrong with its
// last version, too (1.36).
func (s *clusterStore[O, V]) report(c converted[V]) {
	for _, f := range c.found {
		if slices.ContainsFunc(s.found[c.name], func(old *FieldError) bool { return *old == *f }) {
			continue
		}
		problem := FieldError{Value: f.Value, Problem: f.Problem}
		s.cluster.Log.Warn("problem in an object",
			"object", s.kind+" "+c.name.String(), "field", f.Field, "problem", problem.Error())
	}
}

func (*clusterStore[O, V]) note(found map[cache.ObjectName][]*FieldError, c converted[V]) {
	if len(c.found) == 0 {
		delete(found, c.name)
		return
	}
	found[c.name] = c.found
}

// values returns the model values in no order. The caller holds the lock.
func (s *clusterStore[O, V]) values() []*V {
	return slices.AppendSeq(make([]*V, 0, len(s.objects)), maps.Values(s.objects))
}

// wait returns when the objects have been listed for the first time.
func (s *clusterStore[O, V]) wait(ctx context.Context) error {
	select {
	case <-s.listed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the %ss of the cluster: %w", s.kind, context.Cause(ctx))
	}
}
