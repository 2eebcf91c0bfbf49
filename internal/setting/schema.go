package setting

import (
	"maps"
	"slices"
	"strings"
)

// DurationPattern matches a time such as 10m or 1.5s.
const DurationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

const ratePattern = `^ *[0-9]+/(second|minute|hour)( +burst +[0-9]+)? *$`

func addressSchema(description, end string) map[string]any {
	return map[string]any{"type": "string", "pattern": "^[0-9a-fA-F:.]+" + end + "$", "description": description}
}

// OneOrMany is the JSON Schema of a value, or of a list of at least least.
func OneOrMany(value map[string]any, least int) map[string]any {
	return map[string]any{"anyOf": []map[string]any{value, {"type": "array", "items": value, "minItems": least}}}
}

// Properties returns the JSON Schema of the fields of a Balance that are settings.
func Properties() map[string]any {
	out, limits := make(map[string]any), make(map[string]any)
	for _, s := range All {
		schema := s.Schema
		if schema == nil {
			schema = map[string]any{"enum": s.Words}
			if s.HasNone {
				schema["enum"] = append(slices.Clone(s.Words), None)
			}
		}
		to, name := out, s.Field
		if limit, ok := strings.CutPrefix(s.Field, Limits.Field+"."); ok {
			to, name = limits, limit
		}
		text := s.balanceMeaning()
		if s.Words == nil && s.Form == Text {
			text += "; like " + joinWords(s.Examples, "or")
		}
		if name != "" {
			to[name] = withDescription(text, schema)
		}
	}
	out[Limits.Field] = withDescription(Limits.balanceMeaning(), map[string]any{"type": "object", "additionalProperties": false, "properties": limits})
	return out
}

func withDescription(text string, schema map[string]any) map[string]any {
	out := maps.Clone(schema)
	out["description"] = text
	return out
}
