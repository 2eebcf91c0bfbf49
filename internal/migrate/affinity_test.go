package migrate

import (
	"encoding/json"
	"strings"
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
	text, err := yaml.YAMLToJSON([]byte("{metadata: {name: kube-proxy, resourceVersion: \"7\"}, spec: {template: {spec: " + spec + "}}}"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// daemonOf returns what the package reads of a DaemonSet.
func daemonOf(t *testing.T, object []byte) *daemon {
	t.Helper()
	var d daemon
	if err := json.Unmarshal(object, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// patched returns a DaemonSet after a patch for it.
func patched(t *testing.T, object []byte, patchFor func(*daemon) (patch, error)) ([]byte, error) {
	t.Helper()
	p, err := patchFor(daemonOf(t, object))
	if err != nil {
		t.Fatal(err)
	}
	return p.apply(t, object)
}

func (p patch) apply(t *testing.T, object []byte) ([]byte, error) {
	t.Helper()
	text, err := json.Marshal(p.body)
	if err != nil {
		t.Fatal(err)
	}
	switch p.kind {
	case "":
		return object, nil
	case "merge":
		return jsonpatch.MergePatch(object, text)
	}
	decoded, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	return decoded.Apply(object)
}

// withoutEmpty removes objects without fields, which mean the same as none.
func withoutEmpty(v any) any {
	fields, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for name, value := range fields {
		value = withoutEmpty(value)
		if inner, ok := value.(map[string]any); ok && len(inner) == 0 {
			delete(fields, name)
		}
	}
	return fields
}

func expect(t *testing.T, what, want string, object []byte) {
	t.Helper()
	parse := func(text []byte) (v any) {
		t.Helper()
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		return withoutEmpty(v)
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
// has, and comes back as it was, after the printed patches (14.11).
func TestKeepOffAndUndo(t *testing.T) {
	for name, c := range affinities {
		t.Run(name, func(t *testing.T) {
			object := daemonSet(t, c.before)
			for _, what := range []string{"keep-off", "keep-off, twice"} {
				var err error
				if object, err = patched(t, object, label.keepOff); err != nil {
					t.Fatal(err)
				}
				expect(t, what, c.after, object)
			}
			if p, err := label.keepOff(daemonOf(t, object)); err != nil || p.kind != "" {
				t.Errorf("keep-off is not complete: %v, %v", p, err)
			}
			for _, what := range []string{"undo", "undo, twice"} {
				var err error
				if object, err = patched(t, object, label.undo); err != nil {
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
			object, err := patched(t, object, label.undo)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "undo", c.want, object)
		})
	}
}

// A patch for other terms than the present ones fails and changes nothing, and one for a DaemonSet
// without terms names the version of the object, so that the API server refuses it after any change.
func TestPatchTestsWhatItChanges(t *testing.T) {
	for name, c := range affinities {
		d := daemonOf(t, daemonSet(t, c.before))
		p, err := label.keepOff(d)
		if err != nil {
			t.Fatal(err)
		}
		if p.kind == "merge" {
			if text, _ := json.Marshal(p.body); !strings.Contains(string(text), `"metadata":{"resourceVersion":"7"}`) {
				t.Errorf("the patch for %s: %s", name, text)
			}
			continue
		}
		for other, o := range affinities {
			if _, err := p.apply(t, daemonSet(t, o.before)); name != other && p.kind != "" && err == nil {
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
