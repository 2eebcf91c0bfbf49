package source

import (
	"context"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// reader is how a client reads the objects of one kind, in lists L.
type reader[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
}

// newReflector returns a reflector that keeps s in sync with the objects that the
// selectors of choice match.
func newReflector[O metav1.Object, V any, L runtime.Object](s *clusterStore[O, V], r reader[L], choice metav1.ListOptions) *cache.Reflector {
	listing := access{to: s.cluster.Log, verb: "list", kind: s.kind}
	watching := access{to: s.cluster.Log, verb: "watch", kind: s.kind}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all, err := r.List(ctx, choose(o, choice))
			listing.log(ctx, err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			w, err := r.Watch(ctx, choose(o, choice))
			if !listFollows(o, err) {
				watching.log(ctx, err)
			}
			return w, err
		},
	}
	var example O
	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, s.cluster.client),
		example, s, cache.ReflectorOptions{Name: s.kind})
}

func choose(o, choice metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = choice.LabelSelector, choice.FieldSelector
	return o
}

// listFollows reports whether the reflector follows a failed watch with a list
// immediately: the version is too old, or the server cannot stream lists. A real
// problem shows there.
func listFollows(o metav1.ListOptions, err error) bool {
	if err == nil || utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		return false
	}
	return o.SendInitialEvents != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// access logs when requests of one sort begin to fail, fail for another reason,
// or work again. A reflector makes one of them at a time.
type access struct {
	to         *slog.Logger
	verb, kind string
	failing    bool
	reason     metav1.StatusReason
}

func (a *access) log(ctx context.Context, err error) {
	failing, reason := err != nil, apierrors.ReasonForError(err)
	if ctx.Err() != nil || failing == a.failing && reason == a.reason {
		return
	}
	a.failing, a.reason = failing, reason
	if failing {
		a.to.Warn("objects cannot be read from the API server; the known ones stay in use",
			"kind", a.kind, "verb", a.verb, "error", err)
		return
	}
	a.to.Info("objects can be read from the API server again", "kind", a.kind, "verb", a.verb)
}

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
