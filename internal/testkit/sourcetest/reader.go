package sourcetest

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// ReaderOf returns a reader of a fake API server.
func ReaderOf[L runtime.Object](r interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
}) Reader[L] {
	return Reader[L]{r}
}

// Reader reads objects of one kind from a fake API server.
type Reader[L runtime.Object] struct {
	from interface {
		List(context.Context, metav1.ListOptions) (L, error)
		Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	}
}

// List calls each for every object.
func (r Reader[L]) List(ctx context.Context, o metav1.ListOptions, each func(runtime.Object) error) (m metav1.ListMeta, err error) {
	list, err := r.from.List(ctx, o)
	if err != nil {
		return m, err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return m, err
	}
	return metav1.ListMeta{ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue()}, meta.EachListItem(list, each)
}

// Watch returns the changes.
func (r Reader[L]) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	return r.from.Watch(ctx, o)
}
