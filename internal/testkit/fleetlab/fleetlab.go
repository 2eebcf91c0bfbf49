// Package fleetlab is a cluster of many nodes in one process, for load and for faults: an API
// server that lists Nodes, pods and DaemonSets and forwards ports, and agents that answer with
// documents. What a real API server does is tested in e2e.
package fleetlab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Agent is an nftproxy on a node.
type Agent struct {
	Node string
	// Pod is the pod of the agent, in the namespace kube-system; empty: there is none.
	Pod string
	// Answers has the documents; nil: nothing listens on the port.
	Answers http.Handler
	// Silent agents accept connections and do not answer, as a stopped process does.
	Silent bool
	// NoNode reports that there is no Node object.
	NoNode bool
	Labels map[string]string // of the Node
}

// kinds are the lists of objects of Services.
var kinds = map[string]bool{"/api/v1/services": true, "/apis/discovery.k8s.io/v1/endpointslices": true, "/apis/networking.k8s.io/v1/servicecidrs": true}

// Port is the port of the agents.
const Port = 10249

// Server is the API server.
type Server struct {
	*httptest.Server
	agents map[string]*Agent // by pod
	list   []Agent
	ended  chan struct{}
	// Services and Slices are the items of the lists of Services and EndpointSlices.
	Services, Slices func() []any
	// Objects, if set, answers for Services, EndpointSlices and ServiceCIDRs, and for Nodes
	// whose metadata alone is not enough.
	Objects http.Handler
	// Others answers for all that is not listed here, and for Services and EndpointSlices;
	// nil: 404.
	Others http.Handler
	// Forbidden are parts of paths that are answered with 403.
	Forbidden []string
}

// New starts an API server. It ends with the test.
func New(t testing.TB, agents []Agent) *Server {
	s := &Server{agents: make(map[string]*Agent), list: agents, ended: make(chan struct{})}
	for i := range agents {
		if agents[i].Pod != "" {
			s.agents[agents[i].Pod] = &agents[i]
		}
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		close(s.ended)
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Kubeconfig writes a kubeconfig for the API server and returns its path.
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "` + s.URL + `"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	for _, part := range s.Forbidden {
		if strings.Contains(r.URL.Path, part) {
			fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, part+" is forbidden")
			return
		}
	}
	pod, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/kube-system/pods/"), "/")
	metadata := strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList")
	switch {
	case s.Others != nil && strings.Contains(r.URL.Path, "/namespaces/nftproxy-test-"):
		s.Others.ServeHTTP(w, r)
	case s.Objects != nil && (kinds[r.URL.Path] || r.URL.Path == "/api/v1/nodes" && !metadata):
		s.Objects.ServeHTTP(w, r)
	case r.URL.Path == "/api/v1/nodes":
		s.nodes(w, r.URL.Query().Get("labelSelector"))
	case r.URL.Path == "/api/v1/pods" || strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/") && strings.HasSuffix(r.URL.Path, "/pods"):
		s.pods(w, r.URL.Query().Get("fieldSelector"))
	case strings.HasPrefix(r.URL.Path, "/apis/apps/v1/") && strings.HasSuffix(r.URL.Path, "/daemonsets"):
		answer(w, []any{map[string]any{"metadata": map[string]string{"namespace": "kube-system", "name": "nftproxy"}, "spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]string{"image": "registry.example.com/nftproxy:v0.2.0"}}, "nodeSelector": map[string]string{"kubernetes.io/os": "linux"}, "volumes": []any{map[string]any{"configMap": map[string]string{"name": "nftproxy-config"}}},
		}}}}})
	case r.URL.Path == "/api/v1/services" && s.Others == nil:
		answer(w, s.items(s.Services))
	case r.URL.Path == "/apis/discovery.k8s.io/v1/endpointslices" && s.Others == nil:
		answer(w, s.items(s.Slices))
	case rest == "portforward":
		s.forward(w, r, s.agents[pod])
	case strings.HasPrefix(rest, "proxy/"):
		name, _, _ := strings.Cut(pod, ":")
		s.proxy(w, r, s.agents[name], strings.TrimPrefix(rest, "proxy"))
	case s.Others != nil:
		s.Others.ServeHTTP(w, r)
	default:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "there is no "+r.URL.Path)
	}
}

func (s *Server) items(list func() []any) []any {
	if list == nil {
		return []any{}
	}
	return list()
}

// nodes answers with the Nodes that have a label, which the selector names as key=value.
func (s *Server) nodes(w http.ResponseWriter, selector string) {
	var items []any
	key, value, _ := strings.Cut(selector, "=")
	for i := range s.list {
		a := &s.list[i]
		if a.NoNode || selector != "" && a.Labels[key] != value {
			continue
		}
		labels := map[string]string{"kubernetes.io/os": "linux"}
		for k, v := range a.Labels {
			labels[k] = v
		}
		items = append(items, map[string]any{"metadata": map[string]any{"name": a.Node, "labels": labels}})
	}
	answer(w, items)
}

// pods answers with the pods of agents, or with the one that a field selects by its name.
func (s *Server) pods(w http.ResponseWriter, selector string) {
	var items []any
	name, one := strings.CutPrefix(selector, "metadata.name=")
	for i := range s.list {
		if a := &s.list[i]; a.Pod != "" && (!one || a.Pod == name) {
			items = append(items, map[string]any{
				"metadata": map[string]any{"namespace": "kube-system", "name": a.Pod},
				"spec":     map[string]any{"nodeName": a.Node, "hostNetwork": true},
				"status":   map[string]any{"phase": "Running", "conditions": []any{map[string]string{"type": "Ready", "status": "True"}}},
			})
		}
	}
	answer(w, items)
}

// proxy passes a request on to an agent.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, a *Agent, path string) {
	switch {
	case a == nil || a.Answers == nil && !a.Silent:
		fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "connect: connection refused")
	case a.Silent:
		select {
		case <-r.Context().Done():
		case <-s.ended:
		}
	default:
		to := r.Clone(r.Context())
		to.URL.Path = path
		a.Answers.ServeHTTP(w, to)
	}
}

func answer(w http.ResponseWriter, items []any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]string{"resourceVersion": "1"}, "items": items}) // else the client is gone
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
}
