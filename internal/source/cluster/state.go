package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/source"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// unusableAfter is how long requests of one sort must fail, or stay without an answer, until the API server counts
// as unusable. Watches end every few minutes, connections break, and an API server restarts within seconds: all of
// this is normal, and the next request succeeds.
const unusableAfter = 30 * time.Second

// access records when requests of one sort begin to fail, fail for another reason,
// or work again, and logs it. A reflector makes one of them at a time.
type access struct {
	to         *slog.Logger
	verb, kind string

	mu          sync.Mutex
	err         error // of the last request
	reason      metav1.StatusReason
	since       time.Time // of the failures
	asked       time.Time // zero: no request waits for an answer
	heard       bool      // objects have come
	recovered   time.Time // last time the requests worked again after [unusableAfter]
	lastSuccess time.Time
	failures    uint64
}

func (a *access) beginRequest() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = time.Now()
}

func (a *access) noteAnswer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked, a.heard = time.Time{}, true
}

func (a *access) endRequest(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, failed, reason, began := time.Now(), a.err != nil, a.reason, a.asked
	a.asked, a.err, a.reason = time.Time{}, err, apierrors.ReasonForError(err)
	switch {
	case err == nil:
		a.lastSuccess, a.heard = now, true
		if failed && now.Sub(a.since) >= unusableAfter {
			a.recovered = now
		}
	case !failed:
		a.since = began
	}
	if err != nil {
		a.failures++
	}
	switch { // what differs from the request before is logged
	case (err != nil) == failed && a.reason == reason:
	case err != nil:
		a.to.Warn("objects cannot be read from the API server; the known ones stay in use",
			"kind", a.kind, "verb", a.verb, "error", a.err)
	default:
		a.to.Info("objects can be read from the API server again", "kind", a.kind, "verb", a.verb)
	}
}

var errNoAnswer = errors.New("no answer")

// currentFailure returns why the requests are unsuccessful, and since when; nil: they are not.
func (a *access) currentFailure() (since time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, err = a.since, a.err
	if err == nil && !a.asked.IsZero() {
		since, err = a.asked, errNoAnswer
	}
	if err == nil {
		return time.Time{}, nil
	}
	return since, fmt.Errorf("%s %ss: %w", a.verb, a.kind, err)
}

// lastingFailure returns the failure if it has lasted for [unusableAfter].
func (a *access) lastingFailure(now time.Time) (since time.Time, err error) {
	if since, err = a.currentFailure(); now.Sub(since) < unusableAfter {
		return time.Time{}, nil
	}
	return since, err
}

type reading struct {
	kind              string
	listing, watching access
	// found are the problems in the last version of each object; the lock of the Cluster guards them.
	found map[cache.ObjectName][]*manifest.FieldError
}

// lastingFailure returns why the objects cannot be read, and since when; nil: they can. A
// list follows a failed watch, so its error is the more recent one.
func (r *reading) lastingFailure(now time.Time) (since time.Time, err error) {
	since, err = r.listing.lastingFailure(now)
	earlier, other := r.watching.lastingFailure(now)
	switch {
	case err == nil:
		return earlier, other
	case other != nil && earlier.Before(since):
		since = earlier
	}
	return since, err
}

func (r *reading) add(s *source.State) (recovered time.Time) {
	for _, a := range []*access{&r.listing, &r.watching} {
		a.mu.Lock()
		s.Failures += a.failures
		s.LastSuccess = laterOf(s.LastSuccess, a.lastSuccess)
		recovered = laterOf(recovered, a.recovered)
		a.mu.Unlock()
	}
	return recovered
}

// requiredReadings returns the requests without which nothing is served.
func (c *Cluster) requiredReadings() []*reading { return c.all()[:3] }

func (c *Cluster) all() []*reading {
	return []*reading{c.services.reading, c.slices.reading, c.nodes.reading, c.cidrs.reading}
}

func (c *Cluster) hasAnswered() bool {
	return slices.ContainsFunc(c.requiredReadings(), func(r *reading) bool {
		r.listing.mu.Lock()
		defer r.listing.mu.Unlock()
		return r.listing.heard
	})
}

func (c *Cluster) lastError() error {
	for _, r := range c.requiredReadings() {
		for _, a := range []*access{&r.listing, &r.watching} {
			if _, err := a.currentFailure(); err != nil {
				return err
			}
		}
	}
	return nil
}

func laterOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// State implements [source.Source]. After [unusableAfter] without a successful request the API server is unusable.
// ServiceCIDRs may be forbidden (14.3): without them there is a warning.
func (c *Cluster) State() source.State {
	now := time.Now()
	s := source.State{Since: c.started}
	var failing time.Time
	var problems []string
	for _, r := range c.requiredReadings() {
		s.Since = laterOf(s.Since, r.add(&s))
		if since, err := r.lastingFailure(now); err != nil {
			problems = append(problems, err.Error())
			if failing.IsZero() || since.Before(failing) {
				failing = since
			}
		}
	}
	if len(problems) > 0 {
		s.Err, s.Since = errors.New("the API server cannot be read: "+strings.Join(problems, "; ")), failing
	}
	if since, err := c.cidrs.lastingFailure(now); err != nil {
		s.Warnings = []string{fmt.Sprintf("ServiceCIDRs are unknown since %s: %v", since.Format(time.RFC3339), err)}
	}
	c.addWarnings(&s)
	return s
}

func (c *Cluster) addWarnings(s *source.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.LastSuccess = laterOf(s.LastSuccess, c.lastEvent)
	s.Warned = len(s.Warnings)
	for _, r := range c.all() {
		for _, name := range slices.SortedFunc(maps.Keys(r.found), func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) }) {
			for _, problem := range r.found[name] {
				if s.Warned++; len(s.Warnings) < manifest.MaxShown {
					s.Warnings = append(s.Warnings, terminal.Printable(fmt.Sprintf("%s %s: %v", r.kind, strings.TrimPrefix(name.String(), "/"), problem)))
				}
			}
		}
	}
	if more := s.Warned - len(s.Warnings); more > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("and %d more", more))
	}
}
