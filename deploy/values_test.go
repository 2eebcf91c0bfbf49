package deploy_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "rewrite the list of values in the chart's README.md")

const (
	chart      = "helm/nftproxy/"
	listBegins = "<!-- begin values -->\n"
	listEnds   = "<!-- end values -->\n"
)

// value is one row of the list.
type value struct{ name, standard, comment string }

// valuesOf returns the values below a key, with the comments in front of them.
func valuesOf(t *testing.T, prefix string, node *yaml.Node) (out []value) {
	t.Helper()
	for i := 0; i < len(node.Content); i += 2 {
		key, v := node.Content[i], node.Content[i+1]
		name := prefix + key.Value
		row := value{name, "", strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", "")), " ")}
		if row.comment == "" {
			t.Errorf("values.yaml says nothing about %s", name)
		}
		if v.Kind == yaml.MappingNode && len(v.Content) > 0 && name != "resources" {
			out = append(out, row)
			out = append(out, valuesOf(t, name+".", v)...)
			continue
		}
		var any any
		if err := v.Decode(&any); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(any)
		if err != nil {
			t.Fatal(err)
		}
		row.standard = "`" + string(text) + "`"
		out = append(out, row)
	}
	return out
}

// TestValues: the README of the chart lists every value with its default and its comment.
func TestValues(t *testing.T) {
	var file yaml.Node
	if err := yaml.Unmarshal(read(t, chart+"values.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	var list strings.Builder
	list.WriteString(listBegins + "\n| value | default | meaning |\n|---|---|---|\n")
	for _, v := range valuesOf(t, "", file.Content[0]) {
		fmt.Fprintf(&list, "| `%s` | %s | %s |\n", v.name, v.standard, strings.ReplaceAll(v.comment, "|", `\|`))
	}
	list.WriteString("\n" + listEnds)
	readme := string(read(t, chart+"README.md"))
	before, rest, ok := strings.Cut(readme, listBegins)
	_, after, ok2 := strings.Cut(rest, listEnds)
	if !ok || !ok2 {
		t.Fatal("README.md has no place for the list")
	}
	want := before + list.String() + after
	if want == readme {
		return
	}
	if !*update {
		t.Fatal("README.md is out of date: go test ./deploy -run TestValues -update")
	}
	if err := os.WriteFile(chart+"README.md", []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestSchema: the schema has every value, so that a mistyped one is refused.
func TestSchema(t *testing.T) {
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(read(t, chart+"values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(read(t, chart+"values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	for name := range values {
		if schema.Properties[name] == nil {
			t.Errorf("the schema lacks %s", name)
		}
	}
	for name := range schema.Properties {
		if _, ok := values[name]; !ok && name != "global" {
			t.Errorf("values.yaml lacks %s", name)
		}
	}
}
