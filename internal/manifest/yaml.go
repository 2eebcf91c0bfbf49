package manifest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// GivenTwice is the problem of repeated fields; the last one counts.
const GivenTwice = "the field is given twice: remove one of them"

// NoMarker is the problem of an object that another one follows without a line
// "---".
const NoMarker = "the field is given twice: is a line --- missing above it?"

// A few lines of nested aliases can expand to billions of values, where repeatedText bytes
// of a text count as a value.
const repeatedText = 10

// converter converts the YAML of an object to JSON values. Values that JSON does
// not have are problems.
type converter struct {
	*Object
	path    []string // of the value
	aliases int      // around the value
	more    int      // problems that are counted only
}

func (c *converter) addProblem(n *yaml.Node, field, value, text string) {
	if len(c.problems) >= budget.Findings {
		c.more++
		return
	}
	path := strings.Join(append(slices.Clip(c.path), field), ".")
	path = strings.TrimSuffix(strings.ReplaceAll(path, ".[", "["), ".")
	c.problems = append(c.problems, c.errorAt(n, &FieldError{Field: path, Value: value, Problem: text}))
}

func (c *converter) convertChild(name string, n *yaml.Node) any {
	c.path = append(c.path, name)
	v := c.convertValue(n)
	c.path = c.path[:len(c.path)-1]
	return v
}

func (c *converter) convertValue(n *yaml.Node) any {
	if n.Kind == yaml.AliasNode {
		c.aliases++
		defer func() { c.aliases-- }()
		n = n.Alias
	}
	switch {
	case c.aliases > 0 && c.exceedsAliases(n):
		return nil
	case n.Kind == yaml.MappingNode:
		return c.convertMapping(n)
	case n.Kind == yaml.ScalarNode:
		return c.convertScalar(n)
	}
	list := make([]any, len(n.Content))
	for i, item := range n.Content {
		list[i] = c.convertChild("["+strconv.Itoa(i)+"]", item)
	}
	return list
}

// exceedsAliases counts a value that an alias repeats, and reports whether there are too
// many.
func (c *converter) exceedsAliases(n *yaml.Node) bool {
	if c.doc.repeated.Add(int64(1+len(n.Value)/repeatedText)) <= budget.AliasedValues && c.aliases <= budget.AliasNesting {
		return false
	}
	if !c.tooMany {
		c.problems = append(c.problems, c.errorAt(n, &FieldError{
			Problem: fmt.Sprintf("the aliases of the document repeat more than %d values: write them out", budget.AliasedValues)}))
	}
	c.tooMany = true
	return true
}

func (c *converter) convertMapping(n *yaml.Node) map[string]any {
	fields := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		_, twice := fields[key.Value]
		switch {
		case key.Kind == yaml.SequenceNode && len(key.Content) == 1 && strings.Count(key.Content[0].Value, ":") > 1:
			c.addProblem(key, "", "", `has a field name that is not plain text: an IPv6 address with a port needs quotes, like "[2001:db8::10]:443"`)
			continue
		case key.Kind != yaml.ScalarNode:
			c.addProblem(key, "", "", "has a field name that is not plain text")
			continue
		case key.ShortTag() == "!!merge":
			if c.doc.Convert != nil {
				continue
			}
			c.addProblem(key, key.Value, "", "merging is not supported: write the fields out")
			continue
		case c.merged && len(c.path) == 0:
			// Only follows from the missing marker.
		case twice && c.doc.Convert == nil && c.aliases == 0 && len(c.path) == 0 && (key.Value == "apiVersion" || key.Value == "kind"):
			c.merged, c.problems = true, nil
			c.addProblem(key, key.Value, "", NoMarker)
		case twice:
			c.addProblem(key, key.Value, "", GivenTwice)
		}
		fields[key.Value] = c.convertChild(key.Value, value)
	}
	return fields
}

func (c *converter) convertScalar(n *yaml.Node) any {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		return c.convertNumber(n)
	case "!!str", "!!timestamp", "!!merge":
		return n.Value
	}
	c.addProblem(n, "", n.Value, "has the tag "+n.Tag+": text belongs here")
	return nil
}

// convertNumber converts a number. Where a whole number belongs, 80.0 and 080 do not
// stand for 80.
func (c *converter) convertNumber(n *yaml.Node) any {
	if json.Valid([]byte(n.Value)) {
		return json.Number(n.Value)
	}
	var v any
	err := n.Decode(&v)
	f, isFloat := v.(float64)
	switch {
	case err != nil || math.IsInf(f, 0) || math.IsNaN(f):
		return n.Value
	case isFloat:
		return json.Number(strconv.FormatFloat(f, 'e', -1, 64))
	}
	return v
}
