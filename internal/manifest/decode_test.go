package manifest

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"
)

// TestDecodeEqualsLibrary decodes what kubectl prints as Kubernetes does.
func TestDecodeEqualsLibrary(t *testing.T) {
	text, err := os.ReadFile("../source/files/testdata/good/kubectl-list.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []map[string]any `json:"items"`
	}
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	docs, err := Split("list", text)
	if err != nil || len(docs) != 1 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	o, problem := docs[0].Parse()
	if problem != nil {
		t.Fatal(problem)
	}
	if !o.IsCut() {
		t.Error("the list is parsed as a whole, which takes six times the memory")
	}
	n, problem := o.Items()
	if problem != nil || n != len(list.Items) || n == 0 {
		t.Fatalf("%d items, want %d; %v", n, len(list.Items), problem)
	}
	for i := range n {
		item, _ := o.ItemAt(i)
		switch kind, _ := item.Type(); kind {
		case "Service":
			decodeBoth[corev1.Service](t, item, list.Items[i])
		case "EndpointSlice":
			decodeBoth[discoveryv1.EndpointSlice](t, item, list.Items[i])
		case "Node":
			decodeBoth[corev1.Node](t, item, list.Items[i])
		}
	}
}

func decodeBoth[T any](t *testing.T, o *Object, item map[string]any) {
	t.Helper()
	var got, want T
	if problems := o.Decode(&got); len(problems) > 0 {
		t.Error(Errors(problems))
	}
	text, err := yaml.Marshal(item)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-library +decoder):\n%s", diff)
	}
}
