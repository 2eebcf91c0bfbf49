package migrate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Status is how far a migration is.
type Status struct {
	KubeProxy *DaemonSet `json:"kubeProxy"` // null: it does not exist
	NFTProxy  *DaemonSet `json:"nftproxy"`
	// KeepsOff reports whether kube-proxy keeps off the nodes with the label, and all
	// of its pods have been updated accordingly.
	KeepsOff bool   `json:"keepsOff"`
	Nodes    []Node `json:"nodes"`

	label        Label
	hasCondition bool // also if not all pods are updated
}

// DaemonSet is the state of one.
type DaemonSet struct {
	Name    string `json:"name"`
	Desired int    `json:"desired"`
	Updated int    `json:"updated"`
	Ready   int    `json:"ready"`
}

// Node says which proxies run on a node.
type Node struct {
	Name      string `json:"name"`
	Label     bool   `json:"label"`
	KubeProxy Pod    `json:"kubeProxy"`
	NFTProxy  Pod    `json:"nftproxy"`
	Problem   string `json:"problem,omitempty"`

	windows bool
}

// Pod is the state of a pod: ready, starting, ending or none.
type Pod string

const (
	None     Pod = "none"
	Ready    Pod = "ready"
	Starting Pod = "starting"
	Ending   Pod = "ending"
)

// Healthy reports whether one ready proxy runs on each node.
func (s *Status) Healthy() bool {
	return s.KeepsOff && s.KubeProxy.healthy() && s.NFTProxy.healthy() && !slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.Problem != "" })
}

// Status reads the state of a migration to the DaemonSet of that name.
func (c *Client) Status(ctx context.Context, nftproxy string) (*Status, error) {
	s := &Status{label: c.Label, KeepsOff: true, hasCondition: true}
	if err := c.nodes(ctx, s); err != nil {
		return nil, err
	}
	old, err := c.daemonSet(ctx, c.DaemonSet, s, func(n *Node) *Pod { return &n.KubeProxy })
	if err != nil {
		return nil, err
	}
	own, err := c.daemonSet(ctx, nftproxy, s, func(n *Node) *Pod { return &n.NFTProxy })
	if err != nil {
		return nil, err
	}
	s.KubeProxy, s.NFTProxy = old.state(c.DaemonSet), own.state(nftproxy)
	if old != nil {
		p, err := c.Label.keepOff(old)
		if err != nil {
			return nil, fmt.Errorf("read affinity of DaemonSet %s: %w", c.Target, err)
		}
		s.hasCondition = p.kind == ""
		s.KeepsOff = s.hasCondition && old.Status.ObservedGeneration >= old.Metadata.Generation && old.Status.Updated >= old.Status.Desired
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Problem = n.problem(old != nil)
	}
	return s, nil
}

func (c *Client) nodes(ctx context.Context, s *Status) error {
	_, err := kubectl.List(ctx, c.api, "nodes", kubectl.Query{Path: "/api/v1/nodes"}, func(page []corev1.Node) {
		for _, n := range page {
			s.Nodes = append(s.Nodes, Node{Name: n.Name, Label: n.Labels[c.Label.Key] == c.Label.Value,
				KubeProxy: None, NFTProxy: None, windows: n.Labels[corev1.LabelOSStable] == "windows"})
		}
	})
	slices.SortFunc(s.Nodes, compareNames)
	return err
}

func compareNames(a, b Node) int { return strings.Compare(a.Name, b.Name) }

// daemonSet returns a DaemonSet, nil if it does not exist, and notes the state of its
// pods in a field of their nodes.
func (c *Client) daemonSet(ctx context.Context, name string, s *Status, field func(*Node) *Pod) (*daemon, error) {
	var d daemon
	if err := c.get(ctx, c.path(name), &d); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read DaemonSet %s/%s: %w", c.Namespace, name, err)
	}
	q := kubectl.Query{Path: "/api/v1/namespaces/" + c.Namespace + "/pods", Options: map[string]string{"labelSelector": metav1.FormatLabelSelector(&d.Spec.Selector)}}
	_, err := kubectl.List(ctx, c.api, "pods", q, func(pods []corev1.Pod) {
		for _, p := range pods {
			i, found := slices.BinarySearchFunc(s.Nodes, Node{Name: p.Spec.NodeName}, compareNames)
			if owner := metav1.GetControllerOf(&p); found && owner != nil && owner.Kind == "DaemonSet" && owner.Name == name {
				*field(&s.Nodes[i]) = stateOf(&p)
			}
		}
	})
	return &d, err
}

func stateOf(p *corev1.Pod) Pod {
	switch {
	case p.DeletionTimestamp != nil:
		return Ending
	case slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}):
		return Ready
	}
	return Starting
}

func (d *daemon) state(name string) *DaemonSet {
	if d == nil {
		return nil
	}
	return &DaemonSet{Name: name, Desired: d.Status.Desired, Updated: d.Status.Updated, Ready: d.Status.Ready}
}

// problem says what is wrong with the proxies of a node. While there is a DaemonSet of
// kube-proxy, it may be right that neither runs on a node without the label: kube-proxy
// does not run on all kinds of nodes.
func (n *Node) problem(kubeProxy bool) string {
	served := n.Label || !kubeProxy && !n.windows
	switch {
	case n.KubeProxy != None && n.NFTProxy != None && n.KubeProxy != Ending && n.NFTProxy != Ending:
		return "both proxies run here"
	case n.Label && n.KubeProxy != None:
		return "kube-proxy has not left yet"
	case served && n.NFTProxy == None:
		return "no proxy runs here: the rules become outdated"
	case n.NFTProxy == Starting || n.NFTProxy == Ending, n.KubeProxy == Starting || n.KubeProxy == Ending:
		return "not ready"
	}
	return ""
}

// maxNodes limits the nodes without problems that are listed.
const maxNodes = 20

const factFormat = "%-10s  %s"

// Print writes the state, nodes with problems first; all lists every node.
func (s *Status) Print(w io.Writer, all, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours = paint
	keeps := "keeps off nodes with " + s.label.String()
	switch {
	case !s.hasCondition:
		keeps = "does not keep off nodes with " + s.label.String() + ": nftproxy migrate keep-off prints the commands"
	case !s.KeepsOff:
		keeps = "will keep off nodes with " + s.label.String() + " once all pods are updated"
	}
	s.KubeProxy.print(p, "kube-proxy", keeps)
	s.NFTProxy.print(p, "nftproxy", "")
	moved, wrong := 0, 0
	for _, n := range s.Nodes {
		if n.Label {
			moved++
		}
		if n.Problem != "" {
			wrong++
		}
	}
	p.Line(factFormat, "nodes", fmt.Sprintf("%d of %d have the label, %d with problems", moved, len(s.Nodes), wrong))
	p.Line("")
	s.printNodes(p, all)
	return p.Flush()
}

func (d *DaemonSet) healthy() bool { return d == nil || d.Ready >= d.Desired }

func (d *DaemonSet) print(p *terminal.Printer, what, more string) {
	if d == nil {
		p.Line(factFormat, what, "no such DaemonSet")
		return
	}
	if more != "" {
		more = "; " + more
	}
	p.Line(factFormat, what, fmt.Sprintf("pods: %d wanted, %d updated, %d ready%s", d.Desired, d.Updated, d.Ready, more))
}

func (s *Status) printNodes(p *terminal.Printer, all bool) {
	nodes := slices.Clone(s.Nodes)
	slices.SortStableFunc(nodes, func(a, b Node) int { // problems first
		return cmp.Compare(min(len(b.Problem), 1), min(len(a.Problem), 1))
	})
	width := len("NODE")
	for _, n := range nodes {
		width = max(width, len(n.Name))
	}
	p.Line("%-*s  %-6s %-11s %-9s %s", width, "NODE", "LABEL", "KUBE-PROXY", "NFTPROXY", "PROBLEM")
	for i, n := range nodes {
		if !all && i >= maxNodes && n.Problem == "" {
			p.Line("... and %d more without problems: --all", len(nodes)-i)
			return
		}
		label, colour := "no", terminal.Colour("")
		if n.Label {
			label = "yes"
		}
		line := fmt.Sprintf("%-*s  %-6s %-11s %-9s %s", width, n.Name, label, n.KubeProxy, n.NFTProxy, n.Problem)
		if n.Problem != "" {
			colour = terminal.Yellow
		}
		p.Painted(colour, "%s", strings.TrimRight(line, " "))
	}
}
