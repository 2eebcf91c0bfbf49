package bundle

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// kinds are the objects that an archive may have. Secrets are none of them.
var kinds = []string{"Service", "EndpointSlice", "Node", "DaemonSet", "ConfigMap"}

// annotations are the beginnings of those that nftproxy reads.
var annotations = []string{"nftproxy.dev/", "service.kubernetes.io/", "service.cilium.io/", "endpoints.kubernetes.io/"}

// Object returns an object of a kind as JSON, without what may have secrets and does not matter
// here, which it removes: other labels and annotations, selectors, names of pods, the values of
// variables, images and numbers of a machine. It refuses other kinds.
func Object(kind string, o map[string]any) ([]byte, error) {
	if own, _ := o["kind"].(string); !slices.Contains(kinds, kind) || own != "" && own != kind { // lists leave it out
		return nil, fmt.Errorf("objects of the kind %q are not collected", cmp.Or(own, kind))
	}
	o["kind"] = kind
	if m, ok := o["metadata"].(map[string]any); ok {
		delete(m, "managedFields")
		if all, ok := m["labels"].(map[string]any); ok {
			for name := range all {
				if !strings.Contains(name, "kubernetes.io/") && name != "k8s-app" {
					delete(all, name)
				}
			}
		}
		if all, ok := m["annotations"].(map[string]any); ok {
			for name := range all {
				if !slices.ContainsFunc(annotations, func(a string) bool { return strings.HasPrefix(name, a) }) {
					delete(all, name)
				}
			}
		}
	}
	without(o, "status", "images", "nodeInfo.machineID", "nodeInfo.systemUUID")
	without(o, "spec", "providerID")
	if kind == "Service" {
		without(o, "spec", "selector") // values of labels
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

// without removes fields of a part of an object, and with a dot of a field of that.
func without(o map[string]any, part string, fields ...string) {
	in, _ := o[part].(map[string]any)
	for _, name := range fields {
		if outer, inner, nested := strings.Cut(name, "."); nested {
			without(in, outer, inner)
			continue
		}
		delete(in, name)
	}
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
