package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

// CoreAPI is the path of the core objects.
const CoreAPI = "/api/v1"

// requestTimeout limits one request that changes an object. A signal does not interrupt it: it
// would not be known whether there is something to remove.
const requestTimeout = 15 * time.Second

// Purpose is what commands make namespaces for.
type Purpose struct {
	Label string // on all objects that are made
	// Prefix is how the names of the namespaces begin. Others are never deleted.
	Prefix string
}

// secondsAnnotation is how long a run can take; after that its namespace is a leftover.
func (p Purpose) secondsAnnotation() string { return p.Label + "-seconds" }

// Scratch is a namespace of a run of a command, with all that is made in it. It is not safe for
// concurrent use.
type Scratch struct {
	Purpose
	Name string
	// Answered is when the API server had answered to the last request that changes an object.
	Answered time.Time
	Leftovers

	api     rest.Interface
	seconds int // that the run can take
}

// Leftovers are namespaces that a run has found, or leaves.
type Leftovers struct {
	// Remains is the namespace if the API server was still deleting it at the end.
	Remains string `json:"remains,omitempty"`
	// Removed are namespaces of earlier runs that were removed, and Others the ones of runs that may
	// not have ended.
	Removed []string `json:"removed,omitempty"`
	Others  []Other  `json:"others,omitempty"`
}

// Other is the namespace of another run.
type Other struct {
	Namespace string    `json:"namespace"`
	Ends      time.Time `json:"ends"` // at the latest, by the clock of the API server
}

// NewScratch returns a namespace with a name of its own, which does not exist yet. limit is the
// longest time that the run can take.
func NewScratch(api rest.Interface, p Purpose, limit time.Duration) *Scratch {
	return &Scratch{Purpose: p, Name: p.Prefix + rand.String(6), api: api, seconds: int(limit.Seconds())}
}

// Path returns the path of a resource in the namespace.
func (s *Scratch) Path(group, resource string) string {
	return group + "/namespaces/" + s.Name + "/" + resource
}

// Meta returns the metadata of an object of the run.
func (s *Scratch) Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{s.Label: "true"}}
}

// Create creates the namespace, and removes the ones of earlier runs that did not end by themselves.
func (s *Scratch) Create(ctx context.Context, labels map[string]string) error {
	namespace := &corev1.Namespace{ObjectMeta: s.Meta(s.Name)}
	for key, value := range labels {
		namespace.Labels[key] = value
	}
	namespace.Annotations = map[string]string{s.secondsAnnotation(): strconv.Itoa(s.seconds)}
	if err := s.Send(ctx, s.api.Post().AbsPath(CoreAPI, "namespaces"), namespace, namespace); err != nil {
		return fmt.Errorf("create namespace %s: %w", s.Name, err)
	}
	return s.removeLeftovers(ctx, namespace.CreationTimestamp.Time)
}

// Send sends an object, and notes when the answer has arrived. into may be nil. It does nothing if
// ctx has ended, and goes on if ctx ends meanwhile.
func (s *Scratch) Send(ctx context.Context, request *rest.Request, object, into any) error {
	if err := Ended(ctx); err != nil {
		return err
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	request.Body(body).SetHeader("Accept", JSON)
	if _, ok := object.(map[string]any); !ok {
		request.SetHeader("Content-Type", JSON)
	}
	result := request.Do(whole)
	s.Answered = time.Now()
	if into == nil {
		into = new(json.RawMessage)
	}
	return Answer(result, into)
}

// Ended returns why a run has ended early: [context.Canceled], or the cause of its deadline.
func Ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return ctx.Err()
}

const (
	removeTimeout = 30 * time.Second
	// gonePatience is how long a namespace that is being deleted is waited for, and gonePause the
	// time between two questions.
	gonePatience = 15 * time.Second
	gonePause    = 100 * time.Millisecond
)

// ErrNotRemoved means that objects of a run remain.
var ErrNotRemoved = errors.New("objects of this run are not removed")

// Remove removes objects at paths, in this order, then the namespace, also if ctx has ended, and waits
// until the namespace is gone.
func (s *Scratch) Remove(ctx context.Context, paths ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	var err error
	for _, path := range append(paths, CoreAPI+"/namespaces/"+s.Name) {
		err = errors.Join(err, s.Delete(ctx, path))
	}
	if err != nil {
		return fmt.Errorf("%w: %w\nremove them with: kubectl delete namespace %s", ErrNotRemoved, err, s.Name)
	}
	gone := wait.PollUntilContextTimeout(ctx, gonePause, gonePatience, true, func(ctx context.Context) (bool, error) {
		all, err := s.namespaces(ctx)
		return all[s.Name] == nil, err
	})
	if s.Remains = ""; gone != nil {
		s.Remains = s.Name
	}
	return nil
}

// Delete deletes an object that may be gone.
func (s *Scratch) Delete(ctx context.Context, path string) error {
	err := s.api.Delete().AbsPath(path).SetHeader("Accept", JSON).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *Scratch) namespaces(ctx context.Context) (map[string]*corev1.Namespace, error) {
	out := make(map[string]*corev1.Namespace)
	q := Query{Path: CoreAPI + "/namespaces", Options: map[string]string{"labelSelector": s.Label}}
	_, err := List(ctx, s.api, "namespaces", q, func(page []corev1.Namespace) {
		for i := range page {
			if n := &page[i]; strings.HasPrefix(n.Name, s.Prefix) && n.Labels[s.Label] != "" {
				out[n.Name] = n
			}
		}
	})
	return out, err
}

// removeLeftovers removes the namespaces of runs that did not end by themselves. now is the time on
// the clock that their times are of.
func (s *Scratch) removeLeftovers(ctx context.Context, now time.Time) error {
	all, err := s.namespaces(ctx)
	if err != nil {
		return err
	}
	for name, n := range all {
		if name == s.Name || n.DeletionTimestamp != nil {
			continue
		}
		seconds, _ := strconv.Atoi(n.Annotations[s.secondsAnnotation()]) // malformed: it was changed by hand
		if ends := n.CreationTimestamp.Add(time.Duration(seconds) * time.Second); now.Before(ends) {
			s.Others = append(s.Others, Other{Namespace: name, Ends: ends})
			continue
		}
		if err := s.Delete(ctx, CoreAPI+"/namespaces/"+name); err != nil {
			return fmt.Errorf("remove namespace %s of an earlier run: %w", name, err)
		}
		s.Removed = append(s.Removed, name)
	}
	return nil
}
