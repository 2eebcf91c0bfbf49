package cluster

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/nftproxy/nftproxy/internal/manifest"
)

// store receives the API objects of one kind from a reflector and keeps
// them as model values V. Its reflector is the only writer.
type store[O metav1.Object, V any] struct {
	*reading
	cluster *Cluster

	objects  map[cache.ObjectName]*V
	version  string        // the newest resourceVersion that was seen
	complete bool          // listed once
	listed   chan struct{} // closed then
}

var _ cache.ReflectorStore = (*store[metav1.Object, struct{}])(nil)

// converted is the converted form of an API object, without the rest of it.
type converted[V any] struct {
	name  cache.ObjectName
	value *V        // nil: not used
	stamp time.Time // of the change that led to this version
	found []*manifest.FieldError
}

// GetObjectKind and DeepCopyObject make a converted object one that a list may hold.
func (*converted[V]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (c *converted[V]) DeepCopyObject() runtime.Object { return c }

type convertedList[V any] struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []converted[V]
}

func (l *convertedList[V]) DeepCopyObject() runtime.Object { return l }

type event[V any] struct {
	name     cache.ObjectName
	old, now *V // nil: it was not there or not used, or is not any longer
	differs  bool
	gone     bool // the object, used or not
	stamp    time.Time
}

func newStore[O metav1.Object, V any](c *Cluster, kind string) *store[O, V] {
	return &store[O, V]{
		reading: &reading{kind, access{to: c.Log, verb: "list", kind: kind}, access{to: c.Log, verb: "watch", kind: kind}, make(map[cache.ObjectName][]*manifest.FieldError)},
		cluster: c,
		objects: make(map[cache.ObjectName]*V),
		listed:  make(chan struct{}),
	}
}

func (s *store[O, V]) listObjects(ctx context.Context, r Reader, o metav1.ListOptions) (*convertedList[V], error) {
	out := &convertedList[V]{}
	var err error
	out.ListMeta, err = r.List(ctx, o, func(o runtime.Object) error {
		s.listing.noteAnswer()
		c, err := s.read(o)
		out.Items = append(out.Items, c)
		return err
	})
	return out, err
}

func (s *store[O, V]) read(o any) (converted[V], error) {
	switch o := o.(type) {
	case *converted[V]:
		return *o, nil
	case O:
		v, stamp, found := s.cluster.convertObject(o)
		return converted[V]{cache.MetaObjectToName(o), v.(*V), stamp, manifest.FirstOf(found)}, nil
	}
	return converted[V]{}, fmt.Errorf("read %s: unexpected type %T", s.kind, o)
}

// Add stores a new object, or a new version of one.
func (s *store[O, V]) Add(o any) error {
	c, err := s.read(o)
	if err != nil {
		return err
	}
	s.logProblems(c)
	s.cluster.editState(func() bool { return s.putObject(c) })
	return nil
}

// UpdateResourceVersion implements [cache.ResourceVersionUpdater]: all events up to a version have been stored.
func (s *store[O, V]) UpdateResourceVersion(version string) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	s.version = version
}

// putObject stores an object and reports whether that changes anything. If not, the old
// value stays, because readers already share it. The caller holds the lock.
func (s *store[O, V]) putObject(c converted[V]) bool {
	e := event[V]{name: c.name, old: s.objects[c.name], now: c.value, stamp: c.stamp}
	e.differs = !reflect.DeepEqual(e.old, e.now)
	switch {
	case !e.differs:
		e.now = e.old
	case e.now == nil:
		delete(s.objects, c.name)
	default:
		s.objects[c.name] = e.now
	}
	delete(s.found, c.name)
	if len(c.found) > 0 {
		s.found[c.name] = c.found
	}
	s.cluster.objectSeen(e)
	return e.differs
}

// dropObject removes an object and reports whether it was known. The caller holds the lock.
func (s *store[O, V]) dropObject(name cache.ObjectName) bool {
	old, known := s.objects[name]
	delete(s.objects, name)
	delete(s.found, name)
	s.cluster.objectSeen(event[V]{name: name, old: old, differs: known, gone: true})
	return known
}

// Update stores a new version of an object.
func (s *store[O, V]) Update(o any) error { return s.Add(o) }

// Delete removes an object, given itself or its tombstone (2.26).
func (s *store[O, V]) Delete(o any) error {
	name, err := cache.DeletionHandlingObjectToName(o)
	if err != nil {
		return fmt.Errorf("delete %s: %w", s.kind, err)
	}
	s.cluster.editState(func() bool { return s.dropObject(name) })
	return nil
}

// Replace stores a complete list of objects, of a resourceVersion, and removes all others.
func (s *store[O, V]) Replace(list []any, version string) error {
	all := make(map[cache.ObjectName]converted[V], len(list))
	for _, o := range list {
		c, err := s.read(o)
		if err != nil {
			return err
		}
		s.logProblems(c)
		all[c.name] = c
	}
	s.cluster.editState(func() bool {
		s.version = version
		if len(s.objects) == 0 {
			s.objects = make(map[cache.ObjectName]*V, len(all))
		}
		differs := false
		for _, c := range all {
			differs = s.putObject(c) || differs
		}
		for name := range s.objects {
			if _, ok := all[name]; !ok {
				differs = s.dropObject(name) || differs
			}
		}
		maps.DeleteFunc(s.found, func(name cache.ObjectName, _ []*manifest.FieldError) bool { _, ok := all[name]; return !ok })
		if !s.complete {
			s.complete = true
			close(s.listed)
		}
		return differs
	})
	return nil
}

// Resync does nothing: there are no handlers.
func (s *store[O, V]) Resync() error { return nil }

// logProblems logs the problems of an object that its last version did not have (1.36).
func (s *store[O, V]) logProblems(c converted[V]) {
	for _, f := range c.found {
		if slices.ContainsFunc(s.found[c.name], func(old *manifest.FieldError) bool { return *old == *f }) {
			continue
		}
		problem := manifest.FieldError{Value: f.Value, Problem: f.Problem}
		s.cluster.ObjectLog.Warn("problem in an object",
			"object", s.kind+" "+c.name.String(), "field", f.Field, "problem", problem.Error())
	}
}

// values returns the model values in no order. The caller holds the lock.
func (s *store[O, V]) values() []*V {
	return slices.AppendSeq(make([]*V, 0, len(s.objects)), maps.Values(s.objects))
}

func (s *store[O, V]) wait(ctx context.Context) error {
	select {
	case <-s.listed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the %ss of the cluster: %w", s.kind, context.Cause(ctx))
	}
}
