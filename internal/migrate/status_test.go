package migrate

import (
	"fmt"
	"strings"
	"testing"
)

func TestProblem(t *testing.T) {
	for _, c := range []struct {
		node      Node
		kubeProxy bool // there is a DaemonSet
		want      string
	}{
		{Node{KubeProxy: Ready, NFTProxy: None}, true, ""},
		{Node{KubeProxy: None, NFTProxy: None}, true, ""},
		{Node{KubeProxy: Starting, NFTProxy: None}, true, "not ready"},
		{Node{Label: true, KubeProxy: None, NFTProxy: Ready}, true, ""},
		{Node{Label: true, KubeProxy: None, NFTProxy: Starting}, true, "not ready"},
		{Node{Label: true, KubeProxy: Ready, NFTProxy: None}, true, "has not left"},
		{Node{Label: true, KubeProxy: Ending, NFTProxy: Starting}, true, "has not left"},
		{Node{KubeProxy: Starting, NFTProxy: Ending}, true, "not ready"},
		{Node{KubeProxy: Ready, NFTProxy: Ready}, true, "both"},
		{Node{Label: true, KubeProxy: None, NFTProxy: None}, true, "no proxy"},
		{Node{KubeProxy: None, NFTProxy: Ready}, false, ""},
		{Node{KubeProxy: None, NFTProxy: None}, false, "no proxy"},
		{Node{KubeProxy: None, NFTProxy: None, windows: true}, false, ""},
	} {
		if got := c.node.problem(c.kubeProxy); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v, DaemonSet of kube-proxy %v: %q, want %q", c.node, c.kubeProxy, got, c.want)
		}
	}
}

// Nodes with problems are on top, whatever the size of the cluster.
func TestPrintStatus(t *testing.T) {
	s := &Status{KeepsOff: true, hasCondition: true, label: label, KubeProxy: &DaemonSet{"kube-proxy", 4999, 4999, 4999}, NFTProxy: &DaemonSet{"nftproxy", 1, 1, 0}}
	for i := range 5000 {
		s.Nodes = append(s.Nodes, Node{Name: fmt.Sprintf("node-%d", i), KubeProxy: Ready, NFTProxy: None})
	}
	s.Nodes[4321] = Node{Name: "wrong\x1b[2J", Label: true, KubeProxy: None, NFTProxy: Starting, Problem: "not ready"}
	var b strings.Builder
	if err := s.Print(&b, false, false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	want := []string{
		"kube-proxy  pods: 4999 wanted, 4999 updated, 4999 ready; keeps off nodes with nftproxy.dev/proxy=nftproxy",
		"nftproxy    pods: 1 wanted, 1 updated, 0 ready",
		"nodes       1 of 5000 have the label, 1 with problems",
		"",
		"NODE       LABEL  KUBE-PROXY  NFTPROXY  PROBLEM",
		`wrong\x1b[2J  yes    none        starting  not ready`,
	}
	for i, line := range want {
		if i >= len(lines) || lines[i] != line {
			t.Errorf("line %d of\n%s\nis not %q", i+1, b.String(), line)
		}
	}
	if len(lines) > 30 || !strings.Contains(b.String(), "... and 4980 more without problems: --all\n") {
		t.Errorf("%d lines:\n%s", len(lines), b.String())
	}
	b.Reset()
	if err := s.Print(&b, true, false); err != nil || strings.Count(b.String(), "\n") != 5005 {
		t.Errorf("%v, %d lines", err, strings.Count(b.String(), "\n"))
	}
	if s.Healthy() {
		t.Error("healthy with a problem")
	}
}
