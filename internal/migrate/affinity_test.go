package migrate

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"
)

const (
	own       = "{key: nftproxy.dev/proxy, operator: NotIn, values: [nftproxy]}"
	fargate   = "{key: compute-type, operator: NotIn, values: [fargate]}"
	windows   = "{key: os, operator: NotIn, values: [windows]}"
	byName    = "{key: metadata.name, operator: In, values: [node-1]}"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [" + windows + "]}}]"
	pods      = "podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchLabels: {b: c}}}]}"
	future    = "futureAffinity: {nodes: [x]}"
)

// nodes returns an affinity with node selector terms and other fields.
func nodes(terms, others string) string {
	return "{" + others + "nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" + terms + "]}}}"
}

// daemonSet returns the parts of a DaemonSet that a patch may see.
func daemonSet(t *testing.T, affinity string) []byte {
	t.Helper()
	spec := "{containers: [{name: kube-proxy}], nodeSelector: {kubernetes.io/os: linux}}"
	if affinity != "" {
		spec = "{containers: [{name: kube-proxy}], nodeSelector: {kubernetes.io/os: linux}, affinity: " + affinity + "}"
	}
	text, err := yaml.YAMLToJSON([]byte("{metadata: {name: kube-proxy}, spec: {template: {spec: " + spec + "}}}"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// affinityOf returns the affinity of a DaemonSet.
func affinityOf(t *testing.T, object []byte) affinity {
	t.Helper()
	var d daemon
	if err := json.Unmarshal(object, &d); err != nil {
		t.Fatal(err)
	}
	a, err := parseAffinity(d.Spec.Template.Spec.Affinity)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// patched returns a DaemonSet after a patch.
func patched(t *testing.T, object []byte, p Patch) ([]byte, error) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if p == nil {
		text = []byte("[]")
	}
	decoded, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	return decoded.Apply(object)
}

func expect(t *testing.T, what, want string, object []byte) {
	t.Helper()
	parse := func(text []byte) (v any) {
		t.Helper()
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if diff := cmp.Diff(parse(daemonSet(t, want)), parse(object)); diff != "" {
		t.Errorf("after %s (-want +got):\n%s", what, diff)
	}
}

var label = Label{"nftproxy.dev/proxy", "nftproxy"}

// affinities are what a DaemonSet may have, and what it has then.
var affinities = map[string]struct{ before, after string }{
	"none":             {"", nodes("{matchExpressions: ["+own+"]}", "")},
	"of pods":          {"{" + pods + "}", nodes("{matchExpressions: ["+own+"]}", pods+", ")},
	"of a later field": {"{" + future + "}", nodes("{matchExpressions: ["+own+"]}", future+", ")},
	"preferred nodes": {"{nodeAffinity: {" + preferred + "}}",
		"{nodeAffinity: {" + preferred + ", requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [" + own + "]}]}}}"},
	"a term":        {nodes("{matchExpressions: ["+fargate+"]}", ""), nodes("{matchExpressions: ["+fargate+", "+own+"]}", "")},
	"a field":       {nodes("{matchFields: ["+byName+"]}", ""), nodes("{matchFields: ["+byName+"], matchExpressions: ["+own+"]}", "")},
	"an empty term": {nodes("{}", ""), nodes("{}", "")},
	"several terms, and everything else": {
		nodes("{matchExpressions: ["+fargate+", "+windows+"]}, {matchFields: ["+byName+"]}, {matchExpressions: ["+windows+"], matchFields: ["+byName+"]}, {}", pods+", "),
		nodes("{matchExpressions: ["+fargate+", "+windows+", "+own+"]}, {matchFields: ["+byName+"], matchExpressions: ["+own+"]}, {matchExpressions: ["+windows+", "+own+"], matchFields: ["+byName+"]}, {}", pods+", "),
	},
}

// kube-proxy leaves exactly the nodes with the label, whatever affinity its DaemonSet
// has, and comes back as it was (14.11).
func TestKeepOffAndUndo(t *testing.T) {
	for name, c := range affinities {
		t.Run(name, func(t *testing.T) {
			object := daemonSet(t, c.before)
			for _, what := range []string{"keep-off", "keep-off, twice"} {
				var err error
				if object, err = patched(t, object, label.keepOff(affinityOf(t, object))); err != nil {
					t.Fatal(err)
				}
				expect(t, what, c.after, object)
			}
			if p := label.keepOff(affinityOf(t, object)); p != nil {
				t.Errorf("keep-off is not complete: %v", p)
			}
			for _, what := range []string{"undo", "undo, twice"} {
				var err error
				if object, err = patched(t, object, label.undo(affinityOf(t, object))); err != nil {
					t.Fatal(err)
				}
				expect(t, what, c.before, object)
			}
		})
	}
}

// What others edit in between stays.
func TestUndoAfterEdit(t *testing.T) {
	for name, c := range map[string]struct{ edited, want string }{
		"condition added":                {nodes("{matchExpressions: ["+own+", "+windows+"]}", ""), nodes("{matchExpressions: ["+windows+"]}", "")},
		"term added":                     {nodes("{matchExpressions: ["+fargate+", "+own+"]}, {matchExpressions: ["+windows+"]}", ""), nodes("{matchExpressions: ["+fargate+"]}, {matchExpressions: ["+windows+"]}", "")},
		"condition twice":                {nodes("{matchExpressions: ["+own+", "+windows+", "+own+"]}", ""), nodes("{matchExpressions: ["+windows+"]}", "")},
		"pods added":                     {nodes("{matchExpressions: ["+own+"]}", pods+", "), "{" + pods + "}"},
		"other value":                    {nodes("{matchExpressions: [{key: nftproxy.dev/proxy, operator: NotIn, values: [nftproxy, x]}]}", ""), nodes("{matchExpressions: [{key: nftproxy.dev/proxy, operator: NotIn, values: [nftproxy, x]}]}", "")},
		"term beside one for all others": {nodes("{matchExpressions: ["+own+"]}, {matchExpressions: ["+windows+"]}", ""), ""},
		"affinity removed":               {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := daemonSet(t, c.edited)
			object, err := patched(t, object, label.undo(affinityOf(t, object)))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "undo", c.want, object)
		})
	}
}

// A patch for another affinity than the present one fails and changes nothing.
func TestPatchTestsWhatItChanges(t *testing.T) {
	for name, c := range affinities {
		for other, o := range affinities {
			if name == other {
				continue
			}
			p := label.keepOff(affinityOf(t, daemonSet(t, c.before)))
			if _, err := patched(t, daemonSet(t, o.before), p); p != nil && err == nil {
				t.Errorf("the patch for %s changes a DaemonSet with %s", name, other)
			}
		}
	}
}

func TestParseLabel(t *testing.T) {
	if l, err := ParseLabel("a.b/c=d"); err != nil || l != (Label{"a.b/c", "d"}) {
		t.Errorf("%v, %v", l, err)
	}
	for _, text := range []string{"", "a", "a=", "=a", "a b=c", "a=b c", "a/b/c=d"} {
		if l, err := ParseLabel(text); err == nil {
			t.Errorf("%q: %v", text, l)
		}
	}
}
