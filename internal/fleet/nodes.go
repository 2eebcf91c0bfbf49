package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/nftproxy/nftproxy/internal/kubectl"
)

// daemonSet has the fields of a DaemonSet that say on which nodes its pods belong.
type daemonSet struct {
	Spec struct {
		Template struct {
			Spec struct {
				NodeSelector map[string]string
				Affinity     *corev1.Affinity
				Containers   []struct{ Image string }
			}
		}
	}
}

// Nodes lists the Node objects that a selector of labels selects, sorted by name. With names,
// it returns only these.
func (f *Fleet) Nodes(ctx context.Context, selector string, names []string) ([]Node, error) {
	sets, err := f.daemonSets(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []Node
	q := kubectl.Query{Path: "/api/v1/nodes", Format: kubectl.Metadata, Options: map[string]string{"labelSelector": selector}}
	_, err = kubectl.List(ctx, f.API, "nodes", q, func(page []struct {
		Metadata struct {
			Name   string
			Labels map[string]string
		}
	}) {
		for i := range page {
			n := Node{Name: page[i].Metadata.Name, Labels: page[i].Metadata.Labels}
			if len(names) > 0 && !slices.Contains(names, n.Name) {
				continue
			}
			n.Wanted = slices.ContainsFunc(sets, func(d daemonSet) bool { return d.selects(&n) }) ||
				len(sets) == 0 && n.Labels[corev1.LabelOSStable] != "windows"
			nodes = append(nodes, n)
		}
	})
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, err
}

func (f *Fleet) daemonSets(ctx context.Context) (sets []daemonSet, err error) {
	_, err = kubectl.List(ctx, f.API, "DaemonSets of nftproxy", f.queryAgents("/apis/apps/v1", "daemonsets"), func(page []daemonSet) { sets = append(sets, page...) })
	return sets, err
}

// Image returns the image that the DaemonSets of nftproxy run, of their first container.
func (f *Fleet) Image(ctx context.Context) (string, error) {
	sets, err := f.daemonSets(ctx)
	if err != nil {
		return "", err
	}
	var images []string
	for i := range sets {
		if c := sets[i].Spec.Template.Spec.Containers; len(c) > 0 && !slices.Contains(images, c[0].Image) {
			images = append(images, c[0].Image)
		}
	}
	switch len(images) {
	case 0:
		return "", errors.New("no DaemonSet of nftproxy says which image the nodes have: name one with --image")
	case 1:
		return images[0], nil
	}
	return "", fmt.Errorf("DaemonSets of nftproxy run different images: name one with --image: %s", strings.Join(images, ", "))
}

// selects reports whether pods of a DaemonSet belong on a node. Taints are not looked at: the
// pods tolerate them all.
func (d *daemonSet) selects(n *Node) bool {
	spec := &d.Spec.Template.Spec
	if !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(n.Labels)) {
		return false
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return matches(&t, n) })
}

// matches reports whether a node meets all conditions of a term. A term without conditions
// selects no node.
func matches(t *corev1.NodeSelectorTerm, n *Node) bool {
	fields := labels.Set{"metadata.name": n.Name}
	return len(t.MatchExpressions)+len(t.MatchFields) > 0 && meets(t.MatchExpressions, n.Labels) && meets(t.MatchFields, fields)
}

func meets(conditions []corev1.NodeSelectorRequirement, set labels.Set) bool {
	for _, c := range conditions {
		// The operators of both have the same names, but for capital letters.
		r, err := labels.NewRequirement(c.Key, operators[c.Operator], c.Values)
		if err != nil || !r.Matches(set) {
			return false
		}
	}
	return true
}

// operators are the operators of requirements on labels for those on nodes.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

// Known reports whether a Node object has a name.
func Known(nodes []Node, name string) bool {
	_, found := slices.BinarySearchFunc(nodes, name, func(n Node, name string) int { return strings.Compare(n.Name, name) })
	return found
}
