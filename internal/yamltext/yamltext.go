// Package yamltext writes values as YAML, for files that nftproxy writes and reads again.
package yamltext

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Flow returns a value that JSON can have as YAML on one line. Its fields keep their order.
func Flow(value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	if strings.Contains(strings.ReplaceAll(string(text), `\\`, ""), `\ufffd`) { // in place of such bytes
		return "", errors.New("has bytes that are no text in UTF-8: write them in hexadecimal, as sendHex and expectHex of a check")
	}
	var escaped strings.Builder // JSON may have as they are what YAML folds, like U+0085, or does not have
	for _, r := range string(text) {
		if r <= 0xffff && isHidden(r) {
			fmt.Fprintf(&escaped, `\u%04x`, r)
		} else {
			escaped.WriteRune(r)
		}
	}
	var doc yaml.Node // of JSON, which keeps the order of fields
	if err := yaml.Unmarshal([]byte(escaped.String()), &doc); err != nil {
		return "", err
	}
	return inline(doc.Content[0]), nil
}

func inline(n *yaml.Node) string {
	var parts []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			part := Quote(n.Content[i].Value)
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
		return Quote(n.Value)
	}
	return n.Value
}

// Quote returns a text as YAML for any place, in quotes if it needs them. Bytes that are no UTF-8 become
// U+FFFD: YAML has them in base64 only, which is no text for readers of files.
func Quote(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	out, err := yaml.Marshal(text)
	if err != nil || text == "" || strings.ContainsAny(text, "[]{},?&*!|>%@`") || strings.ContainsFunc(text, isHidden) || strings.HasPrefix(text, ":") || strings.HasSuffix(text, ":") {
		return strconv.Quote(text)
	}
	return strings.TrimSpace(string(out))
}

// NeedsEscapes reports whether a text in a value of JSON has characters that YAML libraries change or
// refuse unless they are escaped, as [Flow] does.
func NeedsEscapes(value any) bool {
	switch v := value.(type) {
	case string:
		return strings.ContainsFunc(v, func(r rune) bool { return r != '\n' && r != '\t' && isHidden(r) })
	case []any:
		return slices.ContainsFunc(v, NeedsEscapes)
	case map[string]any:
		for name, field := range v {
			if NeedsEscapes(name) || NeedsEscapes(field) {
				return true
			}
		}
	}
	return false
}

// isHidden reports whether a character needs an escape: some, like U+0085, end a line in YAML.
func isHidden(r rune) bool { return !unicode.IsPrint(r) }
