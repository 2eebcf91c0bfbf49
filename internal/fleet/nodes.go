package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

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
	_, err = kubectl.List(ctx, f.API, "nodes", q, func(page []metav1.PartialObjectMetadata) {
		for i := range page {
			n := Node{Name: page[i].Name, Labels: page[i].Labels}
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
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	matches, err := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity).Match(object)
	return matches && err == nil
}

// Known reports whether a Node object has a name.
func Known(nodes []Node, name string) bool {
	_, found := slices.BinarySearchFunc(nodes, name, func(n Node, name string) int { return strings.Compare(n.Name, name) })
	return found
}
