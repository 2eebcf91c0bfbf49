// Package apilab is an API server for tests, as far as a proxy asks for objects. A real one is in the tests of e2e.
package apilab

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// object is a Kubernetes object as JSON has it.
type object = map[string]any

// collections are what the API server of the tests has, by kind.
var collections = map[string]string{
	"Service":       "/api/v1/services",
	"Node":          "/api/v1/nodes",
	"EndpointSlice": "/apis/discovery.k8s.io/v1/endpointslices",
	"ServiceCIDR":   "/apis/networking.k8s.io/v1/servicecidrs",
}

// Server answers lists and watches.
type Server struct {
	URL string

	mu       sync.Mutex
	version  int
	withheld string                       // kind that may not be read
	objects  map[string]map[string]object // by path and name
	watchers map[chan object]string       // and what they watch
	read     map[string]bool              // kinds that were asked for
}

// Forget starts WasRead again.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.read)
}

// WasRead reports whether a kind was asked for.
func (s *Server) WasRead(kind string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read[kind]
}

// Start starts a server on the loopback interface of a namespace.
func Start(t *testing.T, ns *netlab.Namespace, manifests string) *Server {
	t.Helper()
	s := New(t, manifests)
	server := httptest.NewUnstartedServer(s)
	if err := ns.Do(func() (err error) {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		_ = server.Listener.Close()
		server.Listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	s.URL = server.URL
	return s
}

// New returns a server that does not listen yet.
func New(t *testing.T, manifests string) *Server {
	t.Helper()
	s := &Server{objects: make(map[string]map[string]object), watchers: make(map[chan object]string), read: make(map[string]bool)}
	for _, path := range collections {
		s.objects[path] = make(map[string]object)
	}
	s.Set(t, manifests)
	return s
}

// Set adds or replaces objects.
func (s *Server) Set(t *testing.T, manifests string) {
	t.Helper()
	for _, text := range strings.Split(manifests, "\n---\n") {
		o := make(object)
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		s.change("", o)
	}
}

// Withhold forbids that a kind is read; empty: everything may be read.
func (s *Server) Withhold(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withheld = kind
}

// Remove deletes an object.
func (s *Server) Remove(kind, name string) { s.change(name, object{"kind": kind}) }

func (s *Server) change(removed string, o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := collections[fmt.Sprint(o["kind"])]
	all := s.objects[path]
	s.version++
	event := "DELETED"
	if removed != "" {
		o = all[removed]
		delete(all, removed)
	} else {
		meta := o["metadata"].(object)
		meta["resourceVersion"] = fmt.Sprint(s.version)
		name := fmt.Sprint(meta["name"])
		event = "ADDED"
		if all[name] != nil {
			event = "MODIFIED"
		}
		all[name] = o
	}
	for w, watched := range s.watchers {
		if watched == path {
			w <- object{"type": event, "object": o}
		}
	}
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	all, ok := s.objects[r.URL.Path]
	var list []object
	for name, o := range all {
		if wanted, only := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); !only || wanted == name {
			list = append(list, o)
		}
	}
	version := fmt.Sprint(s.version)
	var kind string
	for k, path := range collections {
		if path == r.URL.Path {
			kind = k
		}
	}
	s.read[kind] = true
	events := make(chan object, 100)
	if watch := r.URL.Query().Get("watch"); ok && (watch == "true" || watch == "1") {
		s.watchers[events] = r.URL.Path
		defer func() { s.mu.Lock(); delete(s.watchers, events); s.mu.Unlock() }()
	}
	watches := s.watchers[events] != ""
	forbidden := ok && kind == s.withheld
	s.mu.Unlock()
	encode := json.NewEncoder(w).Encode
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case forbidden:
		w.WriteHeader(http.StatusForbidden)
		_ = encode(object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "no such role", "code": http.StatusForbidden})
		return
	case !watches:
		_ = encode(object{"kind": kind + "List", "apiVersion": apiVersion(kind), "metadata": object{"resourceVersion": version}, "items": list})
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, o := range list {
			_ = encode(object{"type": "ADDED", "object": o})
		}
		_ = encode(object{"type": "BOOKMARK", "object": object{"kind": kind, "apiVersion": apiVersion(kind),
			"metadata": object{"resourceVersion": version, "annotations": object{"k8s.io/initial-events-end": "true"}}}})
	}
	for {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case e := <-events:
			_ = encode(e)
		}
	}
}

// apiVersion returns the group and version of a kind.
func apiVersion(kind string) string {
	path := strings.TrimPrefix(strings.TrimPrefix(collections[kind], "/apis/"), "/api/")
	return path[:strings.LastIndex(path, "/")]
}
