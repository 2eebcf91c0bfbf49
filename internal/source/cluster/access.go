package cluster

import (
	"context"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// newReflector returns a reflector that keeps s in sync with the objects that the
// selectors of choice match.
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

// unstreamed keeps a reflector from asking for a list as a stream of events. A
// stream needs less memory, but it is not compressed: a list takes an API server
// half the processor time, and a tenth of the bytes, which matters when all nodes
// start at the same time.
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
