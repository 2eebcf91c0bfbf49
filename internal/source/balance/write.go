package balance

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Text returns b as a document for people to edit: the fields that are given, in the order
// of the struct, each on a line of its own, and a line for each backend.
func (b *Balance) Text() (string, error) { return document(reflect.ValueOf(b).Elem()) }

// Text returns p as a document, in the form of those of [Balance.Text].
func (p *Pool) Text() (string, error) { return document(reflect.ValueOf(p).Elem()) }

func document(v reflect.Value) (string, error) {
	var out strings.Builder
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		field := v.FieldByIndex(f.Index)
		value := field.Interface()
		switch list := value.(type) {
		case manifest.List[Backend]:
			for i, s := range list {
				text, err := flow(s.short())
				if err != nil {
					return "", fmt.Errorf("%s[%d]: %w", name, i, err)
				}
				if i == 0 {
					fmt.Fprintf(&out, "%s:\n", name)
				}
				fmt.Fprintf(&out, "- %s\n", text)
			}
			continue
		case manifest.List[string]:
			if len(list) == 1 {
				value = list[0]
			}
		case *metav1.Duration:
			if list != nil {
				value = model.DurationText(list.Duration)
			}
		}
		if field.IsZero() && (options == "omitempty" || field.Kind() == reflect.Slice) {
			continue
		}
		text, err := flow(value)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&out, "%s: %s\n", name, text)
	}
	return out.String(), nil
}

// short returns the address of a backend that has nothing else.
func (b Backend) short() any {
	if b == (Backend{Address: b.Address}) {
		return b.Address
	}
	return b
}

// flow returns a value as YAML on one line.
func flow(value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	var doc yaml.Node // of JSON, which keeps the order of fields
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return "", err
	}
	return inline(doc.Content[0]), nil
}

func inline(n *yaml.Node) string {
	var parts []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			part := Quoted(n.Content[i].Value)
			if value := n.Content[i+1]; value.ShortTag() != "!!null" {
				part += ": " + inline(value)
			}
			parts = append(parts, part)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, inline(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	if n.ShortTag() == "!!str" {
		return Quoted(n.Value)
	}
	return n.Value
}

// Quoted returns a text as YAML for any place, in quotes if it needs them.
func Quoted(text string) string {
	if !utf8.ValidString(text) { // the escape \x of YAML is a character, not a byte
		return `!!binary "` + base64.StdEncoding.EncodeToString([]byte(text)) + `"`
	}
	out, err := yaml.Marshal(text)
	if err != nil || text == "" || strings.ContainsAny(text, "[]{},?&*!|>%@`\n") || strings.HasPrefix(text, ":") || strings.HasSuffix(text, ":") {
		return strconv.Quote(text)
	}
	return strings.TrimSpace(string(out))
}
