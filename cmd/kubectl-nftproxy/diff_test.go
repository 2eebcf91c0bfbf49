package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/changes"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/testkit/apilab"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
)

const fleetObjects = `
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.168.7.1}]}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec:
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: cart}
spec:
  clusterIP: 10.96.0.11
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.128.1.1]}
`

// wants is an nftproxy that wants the rules that the objects led to at a time.
type wants struct {
	rules   *nft.Ruleset
	version string
	basis   *api.Basis
	kernel  []api.Difference
}

func (n *wants) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	c := api.Comparison{Version: n.version, Compared: time.Now(), Differences: n.kernel, Count: len(n.kernel), Digests: changes.Digests(n.rules)}
	if service := r.URL.Query().Get("service"); service != "" {
		c.Digests, c.Elements = nil, changes.ElementsOf(n.rules, service)
	}
	var document any = c
	switch r.URL.Path {
	case api.BasisPath:
		document = n.basis
	case api.DescribePath:
		document = api.Description{Namespace: "shop", Name: "web", Node: n.basis.Settings["hostname-override"], Ports: []api.DescribedPort{{Protocol: "tcp", Port: 80}}}
	}
	_ = json.NewEncoder(w).Encode(document)
}

// fleetOf returns a cluster of one node whose nftproxy wants what the objects ask for.
func fleetOf(t *testing.T) (*fleetlab.Server, *apilab.Server, *wants) {
	t.Helper()
	n := &wants{version: version, basis: &api.Basis{Version: api.BasisVersion, Families: []string{"IPv4"}, Cluster: true,
		Settings: map[string]string{"hostname-override": "n1", "cluster-cidr": "10.128.0.0/9"}}}
	a := onNode("n1", version, "a")
	a.Answers = n
	s := fleetlab.New(t, []fleetlab.Agent{a})
	objects := apilab.New(t, fleetObjects)
	s.Objects = objects
	f, err := fleet.Open(fleet.Options{Cluster: kubectl.Access{Kubeconfig: s.Kubeconfig(t)}, Pods: fleet.DefaultPods, Port: fleetlab.Port, Way: fleet.PortForward, Parallel: 1, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := configOf("n1", n.basis)
	if err != nil {
		t.Fatal(err)
	}
	side, err := newIntents(f).of(t.Context(), cfg, n.basis)
	if err != nil {
		t.Fatal(err)
	}
	n.rules = render.Render(side.Routing)
	return s, objects, n
}

// TestClusterDiff: 18.6. An object that a node does not serve as it is is named with its Service and
// elements, and an element that differs in the kernel with its Service; all else is as it should be.
func TestClusterDiff(t *testing.T) {
	s, objects, n := fleetOf(t)
	if code, stdout, stderr := plugin(t, s, "diff"); code != 0 || stdout != "n1: no differences in 2 Services\n" || stderr != "" {
		t.Fatalf("the same: code %d\n%s%s", code, stdout, stderr)
	}
	objects.Set(t, strings.Replace(fleetObjects, "10.128.1.1", "10.128.1.9", 1))
	n.kernel = []api.Difference{{Service: "shop/cart", Port: "http", Change: "delete element { 10.96.0.11 . tcp . 80 : drop } of map ip nftproxy services"}}
	code, stdout, stderr := plugin(t, s, "diff", "n1", "--color", "never")
	want := `n1: 1 difference between the kernel and nftproxy there, 2 between nftproxy there and the API server
  kernel   shop/cart: delete element { 10.96.0.11 . tcp . 80 : drop } of map ip nftproxy services
  objects  shop/web: add map ip nftproxy endpoints 10.96.0.10 . tcp . 80 . 0:1 : 10.128.1.9 . 8080
  objects  shop/web: delete map ip nftproxy endpoints 10.96.0.10 . tcp . 80 . 0:1 : 10.128.1.1 . 8080
`
	if code != cli.CodeNo || stdout != want || stderr != "" {
		t.Errorf("code %d, got\n%swant\n%s%s", code, stdout, want, stderr)
	}
	n.version, n.kernel = "another", nil
	if code, stdout, _ := plugin(t, s, "diff"); code != cli.CodeNo || !strings.Contains(stdout, "n1: not known: nftproxy there is another, and this one "+version+": only the kernel was compared") {
		t.Errorf("another version: code %d\n%s", code, stdout)
	}
}

// TestClusterExplain: 18.10. A connection is traced with the settings of the node that the client is on.
func TestClusterExplain(t *testing.T) {
	s, _, _ := fleetOf(t)
	code, stdout, stderr := plugin(t, s, "explain", "shop/web", "--from", "node/n1", "--brief", "--color", "never")
	if code != 0 || !strings.Contains(stdout, "shop/web:http (ClusterIP)") || !strings.Contains(stdout, "10.128.1.1:8080") || !strings.Contains(stdout, "on node n1") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	for from, want := range map[string]string{"node/n9": "no nftproxy is ready on node n9", "web": `"web" is no client: write pod/NAMESPACE/NAME or node/NAME`, "pod/shop/cart-1": "there is no pod shop/cart-1"} {
		if code, _, stderr := plugin(t, s, "explain", "shop/web", "--from", from); code != cli.CodeError || !strings.Contains(stderr, want) {
			t.Errorf("from %s: code %d, %s", from, code, stderr)
		}
	}
}

// TestClusterDescribe: 18.10. Nodes that serve a Service in the same way are described once.
func TestClusterDescribe(t *testing.T) {
	describes := func(node string, port uint16) fleetlab.Agent {
		a := onNode(node, "1", "a")
		a.Answers = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(api.Description{From: api.FromDaemon, Namespace: "shop", Name: "web", Node: node,
				Ports: []api.DescribedPort{{Protocol: "tcp", Port: port}}})
		})
		return a
	}
	stopped := onNode("n4", "1", "a")
	stopped.Answers, stopped.Silent = nil, true
	s := fleetlab.New(t, []fleetlab.Agent{describes("n1", 80), describes("n2", 81), describes("n3", 80), stopped})
	code, stdout, stderr := plugin(t, s, "describe", "shop/web", "-o", "json", "--timeout", "3s")
	var groups []fleet.Served
	if err := json.Unmarshal([]byte(stdout), &groups); err != nil || code != cli.CodeNo || len(groups) != 3 {
		t.Fatalf("code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if strings.Join(groups[0].Nodes, " ") != "n1 n3" || strings.Join(groups[1].Nodes, " ") != "n2" || !strings.Contains(groups[2].Error, "no answer within 3s") {
		t.Errorf("%+v", groups)
	}
	if _, stdout, _ = plugin(t, s, "describe", "shop/web", "--node", "n1,n3"); !strings.HasPrefix(stdout, "2 nodes: n1, n3\nService shop/web on node n1") {
		t.Errorf("%s", stdout)
	}
}
