package check

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// values are those of a chart.
type values = map[string]any

// kustomize returns what "kustomize build" prints for a directory.
func kustomize(t *testing.T, fs filesys.FileSystem, dir string) string {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// helm returns the files that "helm template" prints, by their names.
func helm(t *testing.T, release string, given values) (map[string]string, error) {
	t.Helper()
	chart, err := loader.Load("../helm/nftproxy")
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, given, common.ReleaseOptions{Name: release, Namespace: "kube-system"}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// helmManifests returns the objects of a chart as one text.
func helmManifests(t *testing.T, release string, given values) string {
	t.Helper()
	files, err := helm(t, release, given)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") {
			out = append(out, text)
		}
	}
	return strings.Join(out, "\n---\n")
}

// decoded returns the documents of a text, by kind and name.
func decoded(t *testing.T, text string) map[string]values {
	t.Helper()
	out := make(map[string]values)
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var object values
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(object) == 0 {
			continue // a template that is switched off
		}
		metadata := object["metadata"].(values)
		key := object["kind"].(string) + " " + metadata["name"].(string)
		if out[key] != nil {
			t.Fatalf("%s occurs twice", key)
		}
		out[key] = object
	}
	return out
}
