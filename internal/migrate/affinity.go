package migrate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultLabel is the label that the manifests use.
const DefaultLabel = "nftproxy.dev/proxy=nftproxy"

// Label is the label of the nodes that nftproxy serves.
type Label struct{ Key, Value string }

// ParseLabel reads KEY=VALUE.
func ParseLabel(text string) (Label, error) {
	key, value, found := strings.Cut(text, "=")
	problems := validation.IsQualifiedName(key)
	if !found || value == "" {
		problems = append(problems, "it needs a key and a value")
	}
	problems = append(problems, validation.IsValidLabelValue(value)...)
	if len(problems) > 0 {
		return Label{}, fmt.Errorf("%q is not a label: %s: write it like %s", text, strings.Join(problems, ", "), DefaultLabel)
	}
	return Label{key, value}, nil
}

func (l Label) String() string { return l.Key + "=" + l.Value }

// condition keeps pods off the nodes with the label.
func (l Label) condition() corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: l.Key, Operator: corev1.NodeSelectorOpNotIn, Values: []string{l.Value}}
}

func (l Label) isCondition(r corev1.NodeSelectorRequirement) bool {
	return r.Key == l.Key && r.Operator == corev1.NodeSelectorOpNotIn && slices.Equal(r.Values, []string{l.Value})
}

type affinity struct {
	NodeAffinity struct {
		Required json.RawMessage `json:"requiredDuringSchedulingIgnoredDuringExecution"`
	} `json:"nodeAffinity"`
}

// terms returns the node selector terms. A node must meet one of them.
func (a *affinity) terms() ([]corev1.NodeSelectorTerm, error) {
	var selector corev1.NodeSelector
	if a.NodeAffinity.Required == nil {
		return nil, nil
	}
	err := json.Unmarshal(a.NodeAffinity.Required, &selector)
	return selector.NodeSelectorTerms, err
}

// patch is one for kubectl: a JSON patch (RFC 6902), or a merge patch.
type patch struct {
	kind string // as kubectl patch --type has it; empty: nothing is to be done
	body any
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

const requiredPath = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"

// patchTerms returns a JSON patch that fails if the terms are others by then: their numbers would
// name other terms.
func (d *daemon) patchTerms(operations []operation) patch {
	if len(operations) == 0 {
		return patch{}
	}
	return patch{"json", append([]operation{{"test", requiredPath, d.Spec.Template.Spec.Affinity.NodeAffinity.Required}}, operations...)}
}

// patchRequired returns a merge patch that sets or, with nil, removes the required node affinity. It
// fails if the DaemonSet has changed by then.
func (d *daemon) patchRequired(selector *corev1.NodeSelector) patch {
	body := map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": selector}
	for _, field := range []string{"nodeAffinity", "affinity", "spec", "template", "spec"} {
		body = map[string]any{field: body}
	}
	body["metadata"] = map[string]any{"resourceVersion": d.Metadata.ResourceVersion}
	return patch{"merge", body}
}

// keepOff returns the patch that adds the condition to each term: terms are alternatives, and one
// without it would still select the nodes. A term without any condition selects none, and stays as
// it is.
func (l Label) keepOff(d *daemon) (patch, error) {
	terms, err := d.Spec.Template.Spec.Affinity.terms()
	if len(terms) == 0 {
		own := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{l.condition()}}
		return d.patchRequired(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{own}}), err
	}
	var add []operation
	for i, t := range terms {
		path := fmt.Sprintf("%s/nodeSelectorTerms/%d/matchExpressions", requiredPath, i)
		switch {
		case slices.ContainsFunc(t.MatchExpressions, l.isCondition):
		case len(t.MatchExpressions) > 0:
			add = append(add, operation{"add", path + "/-", l.condition()})
		case len(t.MatchFields) > 0:
			add = append(add, operation{"add", path, []corev1.NodeSelectorRequirement{l.condition()}})
		}
	}
	return d.patchTerms(add), err
}

func (l Label) undo(d *daemon) (patch, error) {
	terms, err := d.Spec.Template.Spec.Affinity.terms()
	var remove []operation
	for i, t := range terms {
		others := slices.DeleteFunc(slices.Clone(t.MatchExpressions), l.isCondition)
		path := fmt.Sprintf("%s/nodeSelectorTerms/%d/matchExpressions", requiredPath, i)
		switch {
		case len(others) == len(t.MatchExpressions):
		case len(others) > 0:
			remove = append(remove, operation{"replace", path, others})
		case len(t.MatchFields) > 0:
			remove = append(remove, operation{"remove", path, nil})
		default:
			// Without the condition this term selects all nodes, regardless of the others beside
			// it. It cannot stay: a term without conditions selects none.
			return d.patchRequired(nil), err
		}
	}
	return d.patchTerms(remove), err
}
