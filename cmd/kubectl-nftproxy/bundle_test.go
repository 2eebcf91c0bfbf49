package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
	"github.com/nftproxy/nftproxy/internal/testkit/tarball"
)

const (
	secretToken = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl"
	secretWord  = "hunter22"
)

// bundled is a cluster in which everything has addresses, names and secrets, and in which
// asking for a Secret is a mistake.
func bundled(t *testing.T) *fleetlab.Server {
	onNode := func(node string) fleetlab.Agent {
		pages := http.NewServeMux()
		pages.HandleFunc(api.StatusPath, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			s := &api.Status{From: api.FromDaemon, Healthy: true, Daemon: api.Daemon{Version: "1.2.3", Node: node, Source: "https://192.0.2.9:6443"}}
			s.Problems = []api.Problem{{Object: model.Object{Kind: "Service", Namespace: "shop", Name: "cart"}, Reason: model.LacksEndpoints, Message: "10.244.7.9:80: it has no endpoints"}}
			_ = s.WriteJSON(w)
		})
		pages.HandleFunc("/flagz", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "kubeconfig=/etc/kubeconfig\nmaster=https://admin:%s@api.corp.example:6443\nhostname-override=%s\n", secretWord, node)
		})
		pages.HandleFunc("/rules", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "table ip nftproxy {\n 10.244.7.9 . tcp . 80 comment \"shop/cart:http\"\n}\ntable ip6 nftproxy {\n fd00:10:244::9 . tcp . 80\n}\n")
		})
		pages.HandleFunc(api.DescribePath, func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.Query().Get("service"); got != "shop/cart" {
				t.Errorf("describes %q", got)
			}
			fmt.Fprint(w, `{"namespace":"shop","name":"cart","endpointSlices":["cart-x2b"],"ports":[{"endpoints":[{"address":"10.244.1.5:8080"}]}]}`)
		})
		return fleetlab.Agent{Node: node, Pod: "nftproxy-" + node[:2], Answers: pages}
	}
	silent := fleetlab.Agent{Node: "n3.rack7", Pod: "nftproxy-n3", Silent: true}
	s := fleetlab.New(t, []fleetlab.Agent{onNode("n1.rack7"), onNode("n2.rack7"), silent})
	names := func(w http.ResponseWriter, names ...string) {
		var items []any
		for _, n := range names {
			items = append(items, map[string]any{"metadata": map[string]string{"name": n}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
	}
	s.Others = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch path := r.URL.Path; {
		case strings.Contains(path, "secret"):
			t.Errorf("asks for %s", path)
		case path == "/api/v1/namespaces":
			names(w, "shop", "default", "kube-system")
		case path == "/api/v1/services":
			names(w, "cart", "billing")
		case path == "/apis/discovery.k8s.io/v1/endpointslices":
			names(w, "cart-x2b")
		case path == "/api/v1/namespaces/shop/services/cart":
			fmt.Fprintf(w, `{"kind":"Service","metadata":{"name":"cart","namespace":"shop","labels":{"team":"billing"},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"%s","nftproxy.dev/scheduler":"maglev"},"managedFields":[{}]},"spec":{"clusterIP":"10.244.7.9","selector":{"app":"billing"}}}`, secretWord)
		case path == "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices":
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"cart-x2b","namespace":"shop"},"endpoints":[{"addresses":["10.244.1.5"],"nodeName":"n1.rack7","targetRef":{"name":"billing-7d"}}]}]}`)
		case path == "/api/v1/namespaces/kube-system/configmaps/nftproxy-config":
			fmt.Fprintf(w, `{"kind":"ConfigMap","metadata":{"name":"nftproxy-config"},"data":{"kubeconfig.conf":"users:\n- user:\n    token: %s\n    password: %s\nserver: https://192.0.2.9:6443"}}`, secretToken, secretWord)
		case strings.HasSuffix(path, "/log"):
			if r.URL.Query().Get("previous") == "true" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			fmt.Fprintf(w, "2026-11-26T10:00:00Z level=WARN msg=\"list Services\" error=\"Get https://192.0.2.9:6443: Authorization: Bearer %s\" node=ip-10-244-0-7 object=\"Service shop/billing\"\nfd00:10:244::9: refused\n", secretToken)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	return s
}

// TestClusterBundle: 18.20, 18.21. The archive has each part, worst nodes first, and says which
// are missing; no part has a secret.
func TestClusterBundle(t *testing.T) {
	s, file := bundled(t), filepath.Join(t.TempDir(), "case.tar.gz")
	code, stdout, stderr := plugin(t, s, "bundle", "--timeout", "2s", "--file", file)
	if code != 0 || !strings.Contains(stdout, file) || stderr != "" {
		t.Fatalf("code %d: %s%s", code, stdout, stderr)
	}
	files := tarball.Unpack(t, file)
	for name, want := range map[string]string{
		"cluster/status.json": `"no answer"`, "cluster/nodes.json": `"n1.rack7"`, "cluster/daemonsets.json": "nftproxy-config", "cluster/configmap-nftproxy-config.json": "192.0.2.9",
		"cluster/objects/shop/cart.json": "nftproxy.dev/scheduler", "cluster/objects/shop/cart-slices.json": "10.244.1.5",
		"nodes/n1.rack7/status.json": `"1.2.3"`, "nodes/n2.rack7/rules.txt": "table ip6 nftproxy", "nodes/n1.rack7/flagz.txt": "hostname-override", "nodes/n1.rack7/describe/shop/cart.json": "cart-x2b",
		"nodes/n3.rack7/log.txt": "list Services", "contents.txt": "nodes/n3.rack7/status.json  missing: no answer within 2s",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, files[name])
		}
	}
	contents := files["contents.txt"]
	if strings.Index(contents, "nodes/n3.rack7") > strings.Index(contents, "nodes/n1.rack7") {
		t.Errorf("the worst node is not the first one:\n%s", contents)
	}
	for name, text := range files {
		if strings.Contains(text, secretToken) || strings.Contains(text, secretWord) || strings.Contains(text, "last-applied") {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is not JSON:\n%s", name, text)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others can read the archive", info, err)
	}
	if code, _, stderr := plugin(t, s, "bundle", "--file", file); code != cli.CodeError || !strings.Contains(stderr, "exists") {
		t.Errorf("a file that exists: code %d: %s", code, stderr)
	}
}

// TestClusterBundleSize: 18.23. The size of all files is bounded, and contents.txt names nodes
// that found no room.
func TestClusterBundleSize(t *testing.T) {
	page := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB
	var agents []fleetlab.Agent
	for i := range 4 {
		a := fleetlab.Agent{Node: fmt.Sprint("n", i), Pod: fmt.Sprint("nftproxy-n", i)}
		a.Answers = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == api.StatusPath {
				w.Header().Set("Content-Type", "application/json")
				_ = (&api.Status{From: api.FromDaemon, Healthy: true}).WriteJSON(w)
				return
			}
			_, _ = io.WriteString(w, page)
		})
		agents = append(agents, a)
	}
	file := filepath.Join(t.TempDir(), "case.tar.gz")
	code, stdout, stderr := plugin(t, fleetlab.New(t, agents), "bundle", "--file", file, "--max-node-size", "2", "--max-size", "5", "--parallel", "1")
	if code != 0 || strings.Contains(stdout, " 0 files cut") {
		t.Fatalf("code %d: %s%s", code, stdout, stderr)
	}
	files, sum, nodes := tarball.Unpack(t, file), 0, make(map[string]int)
	for name, text := range files {
		if parts := strings.Split(name, "/"); parts[0] == "nodes" {
			nodes[parts[1]] += len(text)
		}
		if name != "contents.txt" {
			sum += len(text)
		}
	}
	if sum > 5<<20 || nodes["n0"] > 2<<20 || nodes["n0"] < 1<<20 {
		t.Errorf("%d bytes, of nodes %v", sum, nodes)
	}
	if !strings.Contains(files["contents.txt"], "the archive is full") || !strings.Contains(files["contents.txt"], "cut: the first") {
		t.Error(files["contents.txt"])
	}
}
