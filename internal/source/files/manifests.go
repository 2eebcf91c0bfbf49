package files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/source/balance"
	"github.com/nftproxy/nftproxy/internal/yamltext"
)

// WriteManifests writes the objects of the input, which [Reader.Keep] has kept, as YAML
// documents: objects of Kubernetes as they are, and a Balance as the objects that it stands
// for, or as it is if Kubernetes has none. Reading them gives the same snapshot.
func (in *Input) WriteManifests(w io.Writer) error {
	var b bytes.Buffer
	for i, object := range in.Manifests {
		text, err := manifestText(object)
		if err != nil {
			return fmt.Errorf("write object: %w", err)
		}
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(text)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write objects: %w", err)
	}
	return nil
}

// setType sets kind and apiVersion, taken from the enclosing List if the item has none.
func setType(object json.RawMessage, t metav1.TypeMeta) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(object, &fields) != nil {
		return object // not an object: an error
	}
	fields["kind"], _ = json.Marshal(t.Kind)
	fields["apiVersion"], _ = json.Marshal(t.APIVersion)
	text, _ := json.Marshal(fields)
	return text
}

func manifestText(object any) ([]byte, error) {
	if rest, ok := object.(*balance.Rest); ok {
		text, err := rest.Text()
		return []byte(text), err
	}
	given, isGiven := object.(json.RawMessage)
	if !isGiven {
		var err error
		if given, err = json.Marshal(object); err != nil {
			return nil, err
		}
	}
	var fields any
	if err := json.Unmarshal(given, &fields); err != nil {
		return nil, err
	}
	if !isGiven {
		withoutEmpty(fields)
	}
	switch {
	case yamltext.NeedsEscapes(fields):
		text, err := yamltext.Flow(fields)
		return []byte(text + "\n"), err
	case isGiven:
		return yaml.JSONToYAML(given)
	}
	return yaml.Marshal(fields)
}

// withoutEmpty removes objects without fields, which the types of Kubernetes have for structs that are not set.
func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if m, ok := withoutEmpty(value).(map[string]any); ok && len(m) == 0 {
				delete(v, name)
			}
		}
	case []any:
		for _, item := range v {
			withoutEmpty(item)
		}
	}
	return v
}
