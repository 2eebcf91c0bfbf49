package bundle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// kinds are the objects that an archive may have. Secrets are none of them.
var kinds = []string{"Service", "EndpointSlice", "Node", "DaemonSet", "ConfigMap"}

// annotations are the beginnings of those that nftproxy reads.
var annotations = []string{"nftproxy.dev/", "service.kubernetes.io/", "service.cilium.io/", "endpoints.kubernetes.io/"}

// Object returns an object of a kind as JSON, without what may have secrets and does not matter
// here, which it removes: other labels and annotations, selectors, names of pods, the values of
// variables, images and numbers of a machine. It refuses other kinds.
func Object(kind string, o map[string]any) ([]byte, error) {
	if of, _ := o["kind"].(string); !slices.Contains(kinds, kind) || of != "" && of != kind { // lists leave it out
		return nil, fmt.Errorf("objects of the kind %q are not collected", cmp.Or(of, kind))
	}
	o["kind"] = kind
	u := unstructured.Unstructured{Object: o}
	u.SetManagedFields(nil)
	labels, own := u.GetLabels(), u.GetAnnotations()
	maps.DeleteFunc(labels, func(name, _ string) bool { return !strings.Contains(name, "kubernetes.io/") && name != "k8s-app" })
	maps.DeleteFunc(own, func(name, _ string) bool {
		return !slices.ContainsFunc(annotations, func(a string) bool { return strings.HasPrefix(name, a) })
	})
	u.SetLabels(labels)
	u.SetAnnotations(own)
	for _, field := range [][]string{{"status", "images"}, {"status", "nodeInfo", "machineID"}, {"status", "nodeInfo", "systemUUID"}, {"spec", "providerID"}} {
		unstructured.RemoveNestedField(o, field...)
	}
	if kind == "Service" {
		unstructured.RemoveNestedField(o, "spec", "selector") // values of labels
	}
	if endpoints, ok := o["endpoints"].([]any); ok {
		for _, e := range endpoints {
			if e, ok := e.(map[string]any); ok {
				delete(e, "targetRef")
			}
		}
	}
	withoutValues(o)
	return json.MarshalIndent(o, "", " ")
}

func withoutValues(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			withoutValues(e)
		}
	case map[string]any:
		for name, e := range v {
			if list, ok := e.([]any); ok && name == "env" {
				for _, variable := range list {
					if one, ok := variable.(map[string]any); ok && one["value"] != nil {
						one["value"] = removed
					}
				}
			}
			withoutValues(e)
		}
	}
}
