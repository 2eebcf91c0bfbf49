// Package setting has one row for each setting of a Service: its annotation, the field of a Balance, how a value is
// read and written, and the words for it. Everything that reads settings, describes them or documents them uses the
// rows, so that a setting has one name, one meaning and one message for each mistake.
//
// Some things stay outside of the rows:
//
//   - the weights and priorities of endpoints, which are settings of an EndpointSlice by address;
//   - the traffic policies of a Service, which Kubernetes defines;
//   - how lists of addresses, ports, names of Services and health checks are read: that takes
//     libraries which packages that print settings must not know. See [Setting.IsParsed].
package setting

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Domain is the prefix of the annotations.
const Domain = "nftproxy.dev/"

// Setting is a row.
type Setting struct {
	// Label names the setting in the output of commands.
	Label string
	// Kind names it in the JSON of plans.
	Kind string
	// Annotation is the annotation of a Service; empty: Kubernetes has a field for the setting.
	Annotation string
	// Field is the field of a Balance, with a dot if it is in another one; empty: the field
	// listen has the setting, or a Balance has nothing that it could be about.
	Field string
	// Meaning is one sentence, and More what pages add to it, in Markdown.
	Meaning, More string
	// Value is the word for a value in a help text, and Form how a flag takes it. Words are all
	// values, if they are few, and Examples some otherwise.
	Value           string
	Form            Form
	Words, Examples []string
	// HasNone reports that a field of a Balance may be [None], in place of a default.
	HasNone bool
	// Default is the word of a plan for a Service without the setting.
	Default string
	// Connections says what happens to established connections if the setting changes; empty: nothing.
	Connections string
	// Schema is the schema of the field, without a description; nil: it has one of Words.
	Schema map[string]any
	// at is the path of the value in [Values]; [Stated] has a field of the same name for what no rule shows.
	at string
	// wrong is the problem with a number that is none of numbers or not from least to most, in a unit, or with a
	// time that is longer than most nanoseconds.
	wrong       string
	least, most int64
	numbers     []uint32
	unit        string
	// sentences are the texts for people in place of some values.
	sentences map[string]string
}

// None is the value of fields that ask for nothing, in place of a default.
const None = "none"

// Form is how a value stands in YAML.
type Form uint8

const (
	Text Form = iota
	List      // of texts, separated by commas
	Raw       // a number or a mapping
)

// Values are the settings of a Service.
type Values struct {
	Scheduler       model.Scheduler
	ClientAddresses model.ClientAddresses
	Affinity        time.Duration
	Check           *model.Check
	model.Extras
}

// Of returns the settings of a Service. They share lists with it.
func Of(s *model.Service) *Values {
	return &Values{s.Scheduler, s.ClientAddresses, s.AffinityTimeout, s.Check, *s.Extra()}
}

// StatedOf returns the settings that a Service states.
func StatedOf(s *model.Service) (out Stated) {
	if s.Extras == nil && s.Check == nil { // as most
		return out
	}
	v := Of(s)
	for _, row := range All {
		if row.IsStated() {
			row.in(&out).SetString(row.Text(v))
		}
	}
	return out
}

func (s *Setting) in(of *Stated) reflect.Value { return reflect.ValueOf(of).Elem().FieldByName(s.at) }

// IsStated reports whether no rule shows the setting.
func (s *Setting) IsStated() bool { return s.in(new(Stated)).IsValid() }

// In returns the text of a setting that no rule shows.
func (s *Setting) In(of *Stated) string { return s.in(of).String() }

// Told returns a text for people: a sentence in place of a word, if there is one.
func (s *Setting) Told(text string, in words.Vocabulary) string {
	if sentence, ok := s.sentences[text]; ok {
		return in.Text(sentence)
	}
	return text
}

// Flag returns the name of the flag of "nftproxy new".
func (s *Setting) Flag() string { return FlagOf(s.Field) }

// FlagOf returns the flag for a field of a Balance: its name with hyphens. A field in another
// one has its flag. The relay's timeout is no --timeout, which is how long commands wait.
func FlagOf(field string) string {
	if field == Timeout.Field {
		return "relay-timeout"
	}
	field, _, _ = strings.Cut(field, ".")
	var b strings.Builder
	for _, c := range field {
		if 'A' <= c && c <= 'Z' {
			b.WriteByte('-')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// Usage describes the flag.
func (s *Setting) Usage() string {
	value := "`" + s.Value + "`"
	switch {
	case s.Words != nil:
		value += ", " + joinWords(s.Words, "or")
	case s.Examples != nil:
		value += " like " + joinWords(s.Examples, "or")
	}
	return value + ": " + s.balanceMeaning()
}

func (s *Setting) balanceMeaning() string { return words.Balance.Text(s.Meaning) }

// ByField returns the setting of a field of a Balance, or nil.
func ByField(field string) *Setting {
	if i := slices.IndexFunc(All, func(s *Setting) bool { return s.Field == field }); i >= 0 {
		return All[i]
	}
	return nil
}

// Flags returns the settings that have a flag of their own: the ones of a Balance, and one for all [Limits].
func Flags() (out []*Setting) {
	for _, s := range All {
		switch {
		case s.Field == "":
		case !strings.Contains(s.Field, "."):
			out = append(out, s)
		case s == ofLimits[model.LimitConnections]: // the first one
			out = append(out, Limits)
		}
	}
	return out
}

// Annotations returns the names of the annotations of a Service.
func Annotations() (out []string) {
	for _, s := range All {
		if s.Annotation != "" {
			out = append(out, s.Annotation)
		}
	}
	return out
}

// Write returns the annotations for settings, or nil.
func (v *Values) Write() map[string]string {
	var out map[string]string
	for _, s := range All {
		if s.Annotation == "" || s == Check { // its text is for people
			continue
		}
		if text := s.Text(v); text != "" {
			if out == nil {
				out = make(map[string]string)
			}
			out[s.Annotation] = text
		}
	}
	return out
}

// Apply sets the settings of a Service, except its affinity, which Kubernetes has a field for.
func (v *Values) Apply(s *model.Service) {
	s.Scheduler, s.ClientAddresses, s.Check = v.Scheduler, v.ClientAddresses, v.Check
	if !reflect.ValueOf(v.Extras).IsZero() {
		extras := v.Extras
		s.Extras = &extras
	}
}

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
