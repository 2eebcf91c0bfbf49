package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nftproxy/nftproxy/e2e/internal/kubelets"
	"github.com/nftproxy/nftproxy/internal/conntest"
	"github.com/nftproxy/nftproxy/internal/fleet/peers"
)

const labImage = kubelets.NFTProxyImage + ":" + kubelets.NFTProxyTag

// TestConnections: 18.16, 18.17, 18.19, 18.24, 18.25. With the permissions of the page, all connections of three real nodes go where
// explain predicts. Then one node has no nftproxy: a missing element makes the cases fail that need it, and missing
// rules the cases of that node, and no others.
func TestConnections(t *testing.T) {
	c := on(t, kubelets.NFTProxy)
	config := c.allow(t, "tester", "viewer", "test")
	r := new(conntest.Report)
	if code := c.plugin(t, config, r, "test", "--outside"); code != 0 || r.Failed > 0 || len(r.Nodes) != c.Nodes || len(r.Untested) > 0 {
		t.Fatalf("code %d: %s", code, failures(r))
	}
	fmt.Fprintf(t.Output(), "%d cases passed, %d were skipped, with %s, in %.0f s; %q\n", r.Passed, r.Skipped, r.Image, r.Seconds, r.Notes)
	complete(t, r)
	c.testsInBatches(t, config, r)
	c.testsInterrupted(t, config)

	n := c.NodeList[2]
	c.withoutProxy(t, n)
	address := strings.TrimSpace(c.kubectl(t, "get", "service", "web", "-o", "jsonpath={.spec.clusterIPs[0]}"))
	onNode(t, n, "nft", fmt.Sprintf("delete element ip nftproxy services { %s . tcp . 80 }", address))
	r = new(conntest.Report)
	code := c.plugin(t, config, r, "test", "default/web")
	for _, x := range r.Cases {
		missing := x.Node == n.Name && x.To.String() == address+":80" && x.Protocol == "tcp"
		if failed := x.State == conntest.NotPassed; failed != missing {
			t.Errorf("%s: %s, %q", x.Name(), x.State, x.Reasons)
		}
	}
	if code != 1 || r.Failed != 2 || r.Passed < 20 { // from a pod and from the node
		t.Errorf("with an element that is missing: code %d, %d failed, %d passed", code, r.Failed, r.Passed)
	}

	c.shoot(t, config, "test", "default/web")

	onNode(t, n, "nftproxy", "cleanup")
	r = new(conntest.Report)
	code = c.plugin(t, config, r, "test")
	for _, x := range r.Cases {
		// No answer is also what happens without rules, and is not judged where a refusal is predicted by the settings of another node.
		needs := x.Node == n.Name && !strings.HasPrefix(x.Expected.String(), "no answer") && !strings.HasPrefix(x.Expected.String(), "refused")
		if failed := x.State == conntest.NotPassed; failed != needs && x.Node != n.Name || needs && x.State == conntest.Passed {
			t.Errorf("%s: %s, %q", x.Name(), x.State, x.Reasons)
		}
	}
	if code != 1 || r.Failed < 50 || !slices.ContainsFunc(r.Notes, func(note string) bool { return strings.HasPrefix(note, "node "+n.Name+" is judged by the settings") }) {
		t.Errorf("without rules: code %d, %d failed, %q", code, r.Failed, r.Notes)
	}
	if left := c.kubectl(t, "get", "namespaces", "-l", peers.Label, "-o", "name"); left != "" {
		t.Errorf("%s remain", left)
	}
}

// failures lists the cases that have failed.
func failures(r *conntest.Report) string {
	lines := []string{fmt.Sprintf("%d failed, nodes %+v, not tested %+v, notes %q", r.Failed, r.Nodes, r.Untested, r.Notes)}
	for _, x := range r.Cases {
		if x.State == conntest.NotPassed {
			lines = append(lines, fmt.Sprintf("%s: expected %s, got %s: %q", x.Name(), &x.Expected, x.Got, x.Reasons))
		}
	}
	return strings.Join(lines, "\n")
}

// complete checks that a report has cases of every kind on each node.
func complete(t *testing.T, r *conntest.Report) {
	t.Helper()
	passed := make(map[string]int)
	for _, x := range r.Cases {
		if x.State != conntest.Passed {
			continue
		}
		for _, mark := range append(x.Features(), x.Kind, x.Protocol, x.Family, x.Service, "from "+string(x.From)) {
			passed[x.Node+" "+mark]++
		}
	}
	for _, n := range r.Nodes {
		for _, mark := range []string{"policy Local", "affinity", "limited clients", "hairpin", "ClusterIP", "NodePort", "load balancer IP", "tcp", "udp", "IPv4", "IPv6",
			"no-endpoints:tcp", "denied:udp", "allowed:tcp", "name", "from pod", "from host", "from another node", "from outside"} {
			if passed[n.Name+" "+mark] == 0 {
				t.Errorf("%s: no case passed with %q", n.Name, mark)
			}
		}
	}
}

// testsInBatches tests two batches of nodes: pods of the second start when these of the first are gone, and together they
// have the cases of a whole test, except from another node to the one that is alone.
func (c *cluster) testsInBatches(t *testing.T, config string, whole *conntest.Report) {
	t.Helper()
	events, err := c.API.CoreV1().Pods(metav1.NamespaceAll).Watch(t.Context(), metav1.ListOptions{LabelSelector: peers.Label})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	r := new(conntest.Report)
	code := c.plugin(t, config, r, "test", "--outside", "--batch", "2")
	batches := c.batchesIn(t, events)
	slices.SortFunc(batches, func(a, b []string) int { return len(a) - len(b) })
	if len(batches) != 2 || len(batches[0]) != 1 || len(batches[1]) != 2 {
		t.Fatalf("the batches were %q", batches)
	}
	alone := batches[0][0]
	if code != 0 || r.Failed > 0 || !slices.Contains(r.Notes, "node "+alone+" was alone in its batch: no other node has connected to it") {
		t.Errorf("in batches %q: code %d: %s", batches, code, failures(r))
	}
	want := kinds(whole)
	maps.DeleteFunc(want, func(kind string, _ int) bool {
		return strings.HasPrefix(kind, alone+": ") && strings.HasSuffix(kind, " from "+string(conntest.AnotherNode))
	})
	if got := kinds(r); !maps.Equal(got, want) {
		t.Errorf("in batches %q: the cases are\n%v, want\n%v", batches, got, want)
	}
	fmt.Fprintf(t.Output(), "in batches %q: %d cases passed, %d were skipped\n", batches, r.Passed, r.Skipped)
}

// batchesIn returns the nodes whose pods were there at the same time, after all pods of a test are gone.
func (c *cluster) batchesIn(t *testing.T, events watch.Interface) (batches [][]string) {
	t.Helper()
	here := make(map[string]bool)
	for gone := 0; gone < 2*c.Nodes; { // on each node one pod, and one in the network of the node
		e, ok := <-events.ResultChan()
		if !ok {
			t.Fatal("the watch has ended")
		}
		p := e.Object.(*corev1.Pod)
		switch e.Type {
		case watch.Added:
			if len(here) == 0 {
				batches = append(batches, nil)
			}
			here[p.Name] = true
			if last := &batches[len(batches)-1]; !slices.Contains(*last, p.Spec.NodeName) {
				*last = append(*last, p.Spec.NodeName)
			}
		case watch.Deleted:
			delete(here, p.Name)
			gone++
		}
	}
	return batches
}

// kinds counts the cases of a report without addresses and ports, which each test has of its own.
func kinds(r *conntest.Report) map[string]int {
	out := make(map[string]int)
	for _, x := range r.Cases {
		out[fmt.Sprintf("%s: %s, %s %s from %s", x.Node, x.Service, x.Kind, x.Family, x.From)]++
	}
	return out
}

// testsInterrupted ends a test by signals while its pods start.
func (c *cluster) testsInterrupted(t *testing.T, config string) {
	t.Helper()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := c.pluginCommand(t, config, "test")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := c.Control.Start(cmd); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if pods := c.kubectl(t, "get", "pods", "-A", "-l", peers.Label, "-o", "name"); pods == "" {
				return errors.New("there are no pods yet")
			}
			return nil
		})
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(out.String(), "interrupted: everything that the test made is removed") {
			t.Errorf("%v: %v\n%s", signal, err, &out)
		}
		eventually(t, func() error {
			if left := c.kubectl(t, "get", "namespaces,pods,services", "-A", "-l", peers.Label, "-o", "name"); left != "" {
				return fmt.Errorf("%v: objects remain:\n%s", signal, left)
			}
			return nil
		})
	}
}

// withoutProxy keeps the pod of nftproxy off a node, whose rules stay, until the test ends.
func (c *cluster) withoutProxy(t testing.TB, n *kubelets.Node) {
	t.Helper()
	c.kubectl(t, "-n", "kube-system", "patch", "daemonset", "nftproxy", "-p", fmt.Sprintf(
		`{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"NotIn","values":[%q]}]}]}}}}}}}`, n.Name))
	t.Cleanup(func() {
		if _, err := c.Kubectl(context.Background(), "-n", "kube-system", "rollout", "undo", "daemonset/nftproxy"); err != nil {
			t.Error(err)
		}
		if _, err := c.Kubectl(context.Background(), "-n", "kube-system", "rollout", "status", "daemonset/nftproxy", "--timeout=120s"); err != nil {
			t.Error(err)
		}
	})
	eventually(t, func() error {
		pods := c.kubectl(t, "-n", "kube-system", "get", "pods", "-l", "k8s-app=nftproxy", "--field-selector", "spec.nodeName="+n.Name, "-o", "name")
		if pods != "" {
			return fmt.Errorf("%s is still on %s", pods, n.Name)
		}
		return nil
	})
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/nftproxy", "--timeout=120s")
}
