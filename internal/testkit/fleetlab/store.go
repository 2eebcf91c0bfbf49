package fleetlab

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/api"
)

// Store has the namespaces, Services and EndpointSlices that a command writes, and the nodes
// that follow the slice. Set it as [Server.Others].
type Store struct {
	// Denied are permissions that the user does not have, such as "create namespaces".
	Denied []string
	// Refused are writes that fail, such as "POST endpointslices".
	Refused []string
	// Wrote, if set, is called after each write, and before its answer, with method and path.
	Wrote func(method, path string)
	// Ending is how many lists a deleted namespace remains in.
	Ending int
	// Status, if set, returns the status of a new pod, which no kubelet reports.
	Status func(pod map[string]any) map[string]any

	mu      sync.Mutex
	objects map[string]map[string]any // by path
	changes []change
}

// change is one endpoint of the slice.
type change struct {
	at       time.Time
	service  string // namespace/name
	endpoint string
}

// Put adds an object.
func (s *Store) Put(path string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = make(map[string]map[string]any)
	}
	s.objects[path] = object
}

// Paths returns the paths of all objects.
func (s *Store) Paths() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

const namespaces = "/api/v1/namespaces"

// ServeHTTP answers as an API server.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var object map[string]any
	_ = json.NewDecoder(r.Body).Decode(&object) // none
	if strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
		s.review(w, object)
		return
	}
	for _, refused := range s.Refused {
		if method, kind, _ := strings.Cut(refused, " "); r.Method == method && (path.Base(r.URL.Path) == kind || path.Base(path.Dir(r.URL.Path)) == kind) {
			fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, kind+" is forbidden")
			return
		}
	}
	code := s.write(r.Method, r.URL.Path, object)
	if s.Wrote != nil && r.Method != http.MethodGet {
		s.Wrote(r.Method, r.URL.Path)
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Path == namespaces:
		answer(w, s.list())
	case r.Method == http.MethodGet && path.Base(r.URL.Path) == "pods":
		answer(w, s.children(r.URL.Path))
	case code == http.StatusNotFound:
		fail(w, code, metav1.StatusReasonNotFound, "there is no "+r.URL.Path)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object) // else the client is gone
	}
}

func (s *Store) review(w http.ResponseWriter, object map[string]any) {
	attributes := object["spec"].(map[string]any)["resourceAttributes"].(map[string]any)
	right := fmt.Sprint(attributes["verb"], " ", attributes["resource"])
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"kind":"SelfSubjectAccessReview","status":{"allowed":%t}}`, !slices.Contains(s.Denied, right))
}

// write changes an object.
func (s *Store) write(method, at string, object map[string]any) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = make(map[string]map[string]any)
	}
	switch method {
	case http.MethodPost:
		meta := object["metadata"].(map[string]any)
		meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		at = path.Join(at, fmt.Sprint(meta["name"]))
		s.objects[at] = object
		s.note(at, object)
		if path.Base(path.Dir(at)) == "pods" && s.Status != nil {
			object["status"] = s.Status(object)
		}
		return http.StatusCreated
	case http.MethodPatch:
		if path.Base(at) == "status" {
			at = path.Dir(at)
		}
		if s.objects[at] == nil {
			return http.StatusNotFound
		}
		maps.Copy(s.objects[at], object)
		s.note(at, object)
	case http.MethodDelete:
		if s.objects[at] == nil {
			return http.StatusNotFound
		}
		if path.Dir(at) == namespaces && s.Ending > 0 {
			s.objects[at]["metadata"].(map[string]any)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
			return http.StatusOK
		}
		s.remove(at)
	case http.MethodGet:
		if at != namespaces && path.Base(at) != "pods" {
			return http.StatusNotFound
		}
	}
	return http.StatusOK
}

// remove removes an object, and what is in it if it is a namespace.
func (s *Store) remove(at string) {
	maps.DeleteFunc(s.objects, func(other string, _ map[string]any) bool {
		return other == at || path.Dir(at) == namespaces && strings.Contains(other, "/namespaces/"+path.Base(at)+"/")
	})
}

// note remembers the endpoint of a slice.
func (s *Store) note(at string, object map[string]any) {
	if path.Base(path.Dir(at)) != "endpointslices" {
		return
	}
	address := object["endpoints"].([]any)[0].(map[string]any)["addresses"].([]any)[0]
	parts := strings.Split(at, "/")
	s.changes = append(s.changes, change{time.Now(), parts[len(parts)-3] + "/" + parts[len(parts)-1], fmt.Sprint(address, ":9")})
}

// list returns the namespaces, and forgets one that has been deleted for long enough.
func (s *Store) list() (items []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items = []any{}
	for at, object := range s.objects {
		if path.Dir(at) != namespaces {
			continue
		}
		if object["metadata"].(map[string]any)["deletionTimestamp"] != nil {
			if s.Ending--; s.Ending < 0 {
				s.remove(at)
				continue
			}
		}
		items = append(items, object)
	}
	return items
}

// children returns the objects of a resource.
func (s *Store) children(of string) (items []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items = []any{}
	for at, object := range s.objects {
		if path.Dir(at) == of {
			items = append(items, object)
		}
	}
	return items
}

// Applied returns what a node says about a Service whose kernel has each change of the slice a
// while after it.
func (s *Store) Applied(service string, delay time.Duration) (*api.Description, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &api.Description{Changed: &api.LastChange{What: "not since the start"}}
	known := false
	for _, c := range s.changes {
		known = known || c.service == service
		if age := time.Since(c.at) - delay; c.service == service && age > 0 {
			d.Changed = &api.LastChange{Time: time.Now(), AgeSeconds: age.Seconds(), OnlyEndpoint: c.endpoint}
			d.Ports = []api.DescribedPort{{Protocol: "tcp", Endpoints: []api.DescribedEndpoint{{Address: c.endpoint}}}}
		}
	}
	if !known {
		return nil, &api.UnknownError{Name: service}
	}
	return d, nil
}

// Follows answers for a node as [Store.Applied], and edits the description, if edit is not nil.
// basis and status may be nil.
func (s *Store) Follows(delay time.Duration, edit func(*api.Description), basis *api.Basis, status *api.Status) http.Handler {
	reply := func(w http.ResponseWriter, code int, document any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(document) // else the client is gone
	}
	if basis == nil {
		basis = &api.Basis{Version: api.BasisVersion, Cluster: true}
	}
	if status == nil {
		status = &api.Status{Healthy: true}
	}
	pages := http.NewServeMux()
	pages.HandleFunc(api.BasisPath, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, basis) })
	pages.HandleFunc(api.StatusPath, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, status) })
	pages.HandleFunc(api.DescribePath, func(w http.ResponseWriter, r *http.Request) {
		d, err := s.Applied(r.URL.Query().Get("service"), delay)
		if err != nil {
			reply(w, http.StatusNotFound, api.Refusal{Error: err.Error()})
			return
		}
		if edit != nil {
			edit(d)
		}
		reply(w, http.StatusOK, d)
	})
	return pages
}
