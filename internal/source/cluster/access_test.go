package cluster

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	kubetesting "k8s.io/client-go/testing"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// aWhile is longer than the longest pause between attempts.
const aWhile = 10 * time.Minute

// fault makes requests fail for as long as it holds an error.
type fault struct{ err atomic.Pointer[error] }

func (f *fault) set(err error) { f.err.Store(&err) }
func (f *fault) clear()        { f.err.Store(nil) }

func (f *fault) react(kubetesting.Action) (bool, runtime.Object, error) {
	if err := f.err.Load(); err != nil {
		return true, nil, *err
	}
	return false, nil, nil
}

func (f *fault) reactWatch(a kubetesting.Action) (bool, apiwatch.Interface, error) {
	handled, _, err := f.react(a)
	return handled, nil, err
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no such role"))
}

// TestClusterForbidden goes on without ServiceCIDRs, and says so once (14.3).
func TestClusterForbidden(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, Config{}, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML))
				var f fault
				f.set(forbidden("servicecidrs"))
				if verb == "list" {
					l.api.PrependReactor(verb, "servicecidrs", f.react)
				} else {
					l.api.PrependWatchReactor("servicecidrs", f.reactWatch)
				}
				l.start()
				check(t, l.waitSynced(t.Context()))
				l.notified(1)
				time.Sleep(aWhile)
				l.logged(1, "cannot be read", "kind=ServiceCIDR", "verb="+verb, "no such role")
				l.logged(1, "")
				l.notified(0)
				l.loaded("Service a/web [10.96.0.1] 80")

				f.clear()
				time.Sleep(aWhile)
				l.logged(1, "level=INFO", "again", "kind=ServiceCIDR", "verb="+verb)
				l.logged(2, "")
			})
		})
	}
}

// TestClusterOutage has lists that fail before and after the barrier: nothing
// is reported before it, and known objects stay in use after it.
func TestClusterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{}, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML))
		var list fault
		list.set(io.ErrUnexpectedEOF)
		l.api.PrependReactor("list", "services", list.react)
		watches := interceptWatches(l, "services")
		l.start()
		time.Sleep(aWhile)
		l.notified(0)
		l.logged(1, "kind=Service", "verb=list", "unexpected EOF")
		list.set(forbidden("services"))
		time.Sleep(aWhile)
		l.logged(1, "kind=Service", "verb=list", "no such role")
		list.clear()
		time.Sleep(aWhile)
		l.notified(1)
		l.logged(1, "again", "kind=Service", "verb=list")

		list.set(io.ErrUnexpectedEOF)
		(<-watches).Stop()
		time.Sleep(aWhile)
		l.notified(0)
		l.loaded("Service a/web [10.96.0.1] 80")
	})
}

// interceptWatches gives the watches of a resource to the test.
func interceptWatches(l *lab, resource string) <-chan *apiwatch.RaceFreeFakeWatcher {
	out := make(chan *apiwatch.RaceFreeFakeWatcher, 1000)
	l.api.PrependWatchReactor(resource, func(kubetesting.Action) (bool, apiwatch.Interface, error) {
		w := apiwatch.NewRaceFreeFake()
		out <- w
		return true, w, nil
	})
	return out
}

// TestClusterRelist ends watches in several ways. The list that follows
// changes nothing, or shows what was missed.
func TestClusterRelist(t *testing.T) {
	for name, end := range map[string]func(*apiwatch.RaceFreeFakeWatcher){
		"closed": (*apiwatch.RaceFreeFakeWatcher).Stop,
		"410 Gone": func(w *apiwatch.RaceFreeFakeWatcher) {
			w.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
		},
		"internal error": func(w *apiwatch.RaceFreeFakeWatcher) {
			w.Error(&apierrors.NewInternalError(io.ErrUnexpectedEOF).ErrStatus)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, Config{}, sourcetest.Read[corev1.Service](t, sourcetest.WebYAML))
				watches := interceptWatches(l, "services")
				l.start()
				l.notified(1)
				end(<-watches)
				time.Sleep(aWhile)
				l.notified(0)
				l.loaded("Service a/web [10.96.0.1] 80")

				_, err := l.api.CoreV1().Services("a").Update(t.Context(), sourcetest.Read[corev1.Service](t, webSecondYAML), metav1.UpdateOptions{})
				check(t, err)
				l.notified(0) // the watches of the test send nothing
				w := <-watches
				w.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
				time.Sleep(aWhile)
				l.notified(1)
				l.loaded("Service a/web [10.96.0.1] 81")
				l.logged(0, "")
			})
		})
	}
}

// TestClusterList asks for complete lists: of the latest state at the start, and
// later of one that is not older than what is known.
func TestClusterList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{})
		var asked []string
		l.api.PrependReactor("list", "services", func(a kubetesting.Action) (bool, runtime.Object, error) {
			o := a.(kubetesting.ListActionImpl).ListOptions
			asked = append(asked, fmt.Sprintf("version %q, limit %d", o.ResourceVersion, o.Limit))
			return true, &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
		})
		watches := interceptWatches(l, "services")
		l.start()
		l.notified(1)
		(<-watches).Stop()
		time.Sleep(aWhile)
		(<-watches).Error(&apierrors.NewResourceExpired("too old").ErrStatus)
		time.Sleep(aWhile)
		synctest.Wait()
		if want := []string{`version "", limit 0`, `version "7", limit 0`, `version "7", limit 0`}; !slices.Equal(asked, want) {
			t.Errorf("lists of Services: %q, want %q", asked, want)
		}
	})
}

// TestListFollows has failures of watches that are not worth a log message.
func TestListFollows(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		follows bool
	}{
		{"no error", nil, false},
		{"version too old", apierrors.NewResourceExpired(""), true},
		{"bad request", apierrors.NewBadRequest(""), false},
		{"too many requests, which the reflector repeats", apierrors.NewTooManyRequests("", 1), false},
		{"forbidden", forbidden("services"), false},
	} {
		if got := listFollows(c.err); got != c.follows {
			t.Errorf("%s: %t, want %t", c.name, got, c.follows)
		}
	}
}
