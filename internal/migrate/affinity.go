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

// Operation is one of a JSON patch (RFC 6902).
type Operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Patch is a JSON patch. It names only the changed fields, so that fields that this
// program does not know stay.
type Patch []Operation

const (
	affinityPath = "/spec/template/spec/affinity"
	nodesPath    = affinityPath + "/nodeAffinity"
	requiredPath = nodesPath + "/requiredDuringSchedulingIgnoredDuringExecution"
)

func termPath(i int) string {
	return fmt.Sprintf("%s/nodeSelectorTerms/%d/matchExpressions", requiredPath, i)
}

func (p *Patch) add(path string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // types of the API
	}
	*p = append(*p, Operation{"add", path, text})
}

func (p *Patch) remove(path string) { *p = append(*p, Operation{Op: "remove", Path: path}) }

// affinity is the affinity of a DaemonSet's pods, as the API server has it.
type affinity struct {
	raw   json.RawMessage // null: none
	typed *corev1.Affinity
}

func parseAffinity(raw json.RawMessage) (a affinity, err error) {
	if a.raw = raw; raw == nil {
		a.raw = json.RawMessage("null")
	}
	return a, json.Unmarshal(a.raw, &a.typed)
}

// terms returns the node selector terms. A node must meet one of them.
func (a affinity) terms() []corev1.NodeSelectorTerm {
	if a.typed == nil || a.typed.NodeAffinity == nil || a.typed.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.typed.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// keepOff returns the patch that adds the condition to each term: terms are
// alternatives, and one without it would still select the nodes. A term without any
// condition selects none, and stays as it is.
func (l Label) keepOff(a affinity) (p Patch) {
	selector := corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{l.condition()}}}}
	switch {
	case a.typed == nil:
		p.add(affinityPath, corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &selector}})
	case a.typed.NodeAffinity == nil:
		p.add(nodesPath, corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &selector})
	case a.typed.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil:
		p.add(requiredPath, selector)
	}
	for i, t := range a.terms() {
		switch {
		case slices.ContainsFunc(t.MatchExpressions, l.isCondition):
		case len(t.MatchExpressions) > 0:
			p.add(termPath(i)+"/-", l.condition())
		case len(t.MatchFields) > 0:
			p.add(termPath(i), []corev1.NodeSelectorRequirement{l.condition()})
		}
	}
	return p.unlessChanged(a)
}

// undo returns the patch that removes the condition from each term.
func (l Label) undo(a affinity) (p Patch) {
	for i, t := range a.terms() {
		switch others := slices.DeleteFunc(slices.Clone(t.MatchExpressions), l.isCondition); {
		case len(others) == len(t.MatchExpressions):
		case len(others) > 0:
			for j, r := range slices.Backward(t.MatchExpressions) {
				if l.isCondition(r) {
					p.remove(fmt.Sprintf("%s/%d", termPath(i), j))
				}
			}
		case len(t.MatchFields) > 0:
			p.remove(termPath(i))
		default:
			// Without the condition this term selects all nodes, regardless of the
			// others beside it. It cannot stay: a term without conditions selects none.
			p = nil
			p.remove(a.selectorPath())
			return p.unlessChanged(a)
		}
	}
	return p.unlessChanged(a)
}

// selectorPath returns the path of the node selector, or of the object around it
// that has no other content.
func (a affinity) selectorPath() string {
	var fields map[string]map[string]json.RawMessage
	switch err := json.Unmarshal(a.raw, &fields); {
	case err != nil || len(fields["nodeAffinity"]) > 1:
		return requiredPath
	case len(fields) > 1:
		return nodesPath
	}
	return affinityPath
}

// unlessChanged makes the patch fail if the affinity is another one by then: the
// numbers of terms would name other terms.
func (p Patch) unlessChanged(a affinity) Patch {
	if len(p) == 0 {
		return nil
	}
	return slices.Insert(p, 0, Operation{"test", affinityPath, a.raw})
}
