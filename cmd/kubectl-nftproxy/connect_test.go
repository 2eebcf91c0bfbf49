package main

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/fleet/peers"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
)

// statusOf returns what kubelets say about the pods of a test, by node.
func statusOf(by map[string]map[string]any) func(map[string]any) map[string]any {
	return func(pod map[string]any) map[string]any {
		node, _ := pod["spec"].(map[string]any)["nodeName"].(string)
		return by[node]
	}
}

func container(state string, details map[string]any) map[string]any {
	return map[string]any{"phase": "Pending", "conditions": []any{map[string]string{"type": "Ready", "status": "False"}},
		"containerStatuses": []any{map[string]any{"name": "peer", "state": map[string]any{state: details}}}}
}

// TestClusterTestFaults: 18.18, 18.19. Where no pod starts, the command says why on each node, in bounded time, and nothing
// remains; a missing permission is named before anything is written.
func TestClusterTestFaults(t *testing.T) {
	store := &fleetlab.Store{Status: statusOf(map[string]map[string]any{
		"n2": container("waiting", map[string]any{"reason": "ErrImagePull", "message": "not found\nand more"}),
		"n3": container("terminated", map[string]any{"exitCode": 2, "message": `nftproxy: unknown command "peer"`}),
	})}
	s := fleetlab.New(t, []fleetlab.Agent{onNode("n1", "1", "a"), onNode("n2", "1", "a"), onNode("n3", "1", "a")})
	s.Others = store
	var images []string
	store.Wrote = func(method, at string) {
		if method == http.MethodPost && strings.HasSuffix(at, "/pods") {
			images = append(images, at)
		}
	}
	begin := time.Now()
	code, stdout, stderr := plugin(t, s, "test", "--start-timeout", "1s")
	for _, want := range []string{
		"no node could be tested:", "\n  n1: pod host-0 is not started: does a kubelet run on the node?, after 1s", "\n  n2: pod ", "waits: ErrImagePull: not found, after 1s\n",
		`has ended with code 2: nftproxy: unknown command "peer"`,
	} {
		if !strings.Contains(strings.ReplaceAll(stderr, "pod-0", "host-0"), want) {
			t.Errorf("the error lacks %q:\n%s", want, stderr)
		}
	}
	if took := time.Since(begin); code != cli.CodeError || stdout != "" || len(store.Paths()) > 0 || len(images) != 6 || took > time.Minute {
		t.Errorf("code %d after %v, %d pods, %q remain\n%s", code, took, len(images), store.Paths(), stdout)
	}
	store.Denied = []string{"create pods", "patch services"}
	images = nil
	code, _, stderr = plugin(t, s, "test")
	if code != cli.CodeError || !strings.Contains(stderr, "permissions are missing: create pods, create pods/portforward, patch services/status; the ClusterRole nftproxy-test in deploy/kubectl/test.yaml") || len(images) > 0 {
		t.Errorf("without permissions: code %d, %s", code, stderr)
	}
	for _, args := range [][]string{{"--batch", "0"}, {"--batch", "21"}, {"--wait", "0s"}, {"--start-timeout", "-1s"}, {"--peer-port", "0"}, {"--output", "xml"}} {
		if code, _, stderr := plugin(t, s, append([]string{"test"}, args...)...); code != cli.CodeError || !strings.Contains(stderr, args[0]) {
			t.Errorf("%q: code %d, %s", args, code, stderr)
		}
	}
}

// TestBatches: 18.24. There are as few batches as can be, with each node in one of them, and none of a single node
// if a batch may have three.
func TestBatches(t *testing.T) {
	for n := 1; n <= 50; n++ {
		var nodes []string
		for i := range n {
			nodes = append(nodes, "n"+strconv.Itoa(i))
		}
		for most := 1; most <= maxBatch; most++ {
			batches := batchesOf(nodes, most)
			if !slices.Equal(slices.Concat(batches...), nodes) || len(batches) != (n+most-1)/most {
				t.Errorf("%d nodes, %d at most: %q", n, most, batches)
			}
			for _, b := range batches {
				if len(b) > most || len(b) == 1 && most > 2 && n > 1 {
					t.Errorf("%d nodes, %d at most: %q", n, most, batches)
				}
			}
		}
	}
}

// TestClusterTestInterrupted: 18.19. A test that ends while pods start removes everything, and a later one removes
// what a killed one has left, and nothing else.
func TestClusterTestInterrupted(t *testing.T) {
	store := &fleetlab.Store{}
	s := fleetlab.New(t, []fleetlab.Agent{onNode("n1", "1", "a")})
	s.Others = store
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	old := map[string]any{"metadata": map[string]any{"name": "nftproxy-test-old", "creationTimestamp": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339),
		"labels": map[string]any{peers.Label: "true"}, "annotations": map[string]any{peers.Label + "-seconds": "270"}}}
	store.Put("/api/v1/namespaces/nftproxy-test-old", old)
	store.Put("/api/v1/namespaces/shop", map[string]any{"metadata": map[string]any{"name": "shop", "labels": map[string]any{peers.Label: "true"}}})
	store.Wrote = func(method, at string) {
		if method == http.MethodPost && strings.HasSuffix(at, "/pods") {
			cancel()
		}
	}
	root := rootCommand()
	root.SetArgs([]string{"test", "--kubeconfig", s.Kubeconfig(t)})
	root.SetOut(io.Discard)
	err := root.ExecuteContext(ctx)
	if err == nil || err.Error() != "interrupted: everything that the test made is removed" {
		t.Errorf("interrupted: %v", err)
	}
	if left := store.Paths(); len(left) != 1 || left[0] != "/api/v1/namespaces/shop" {
		t.Errorf("%q remain", left)
	}
}
