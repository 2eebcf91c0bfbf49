package bundle

import (
	"encoding/json"
	"regexp"
	"strings"
)

// removed stands where a secret was.
const removed = "(removed)"

// secrets are texts that may give access to something. The first group of an expression stays.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`()(?s)-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\z)`),
	regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`),                                                    // a JSON web token
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)[ +]+)[A-Za-z0-9._~+/=-]{6,}`),                                                          // a header
	regexp.MustCompile(`(://)[^\s/@"']+@`),                                                                                             // user and password of a URL
	regexp.MustCompile(`()\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),                                                                              // a bootstrap token
	regexp.MustCompile(`()\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]*`),                                                                            // PEM in base64
	regexp.MustCompile(`(?i)(["']?[\w-]*(?:` + words + `)[\w-]*["']?\s*[:=]\s*)(?:"(?:[^"\\]|\\.)+(?:"|\z)|'[^']+'|[^\s,;"'{}\[\]]+)`), // a setting
}

// words are in the names of settings and headers whose values are secret.
const words = `password|passwd|secret|token|authorization|api[_-]?key|cookie|credential|client-key-data|client-certificate-data|private[_-]?key`

// WithoutSecrets returns a text without passwords, keys and tokens.
func WithoutSecrets(text string) string {
	for _, s := range secrets[:len(secrets)-1] {
		text = s.ReplaceAllString(text, "${1}"+removed)
	}
	return secrets[len(secrets)-1].ReplaceAllString(text, `${1}"`+removed+`"`)
}

// secretName is the name of a field whose text is secret.
var secretName = regexp.MustCompile(`(?i)(?:` + words + `)`)

// WithoutSecretsJSON returns a JSON document without them. It looks into texts in it, such as
// the files of a ConfigMap.
func WithoutSecretsJSON(text string) string {
	return mapped(text, WithoutSecrets, func(name string) string { return name }, func(name, value string) string {
		if value != "" && secretName.MatchString(name) {
			return removed
		}
		return WithoutSecrets(value)
	})
}

// mapped returns the values of a JSON text with other names of fields and other strings, which
// value gets with the name of their field. plain is for what is not JSON.
func mapped(text string, plain, field func(string) string, value func(name, value string) string) string {
	var out strings.Builder
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for d.More() {
		var v any
		if d.Decode(&v) != nil { // a text that is cut, or none
			return plain(text)
		}
		b, _ := json.MarshalIndent(mapValue("", v, field, value), "", " ") // decoded values have no other types
		out.Write(append(b, '\n'))
	}
	return out.String()
}

func mapValue(name string, v any, field func(string) string, value func(name, value string) string) any {
	switch v := v.(type) {
	case string:
		return value(name, v)
	case []any:
		for i := range v {
			v[i] = mapValue(name, v[i], field, value)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[field(k)] = mapValue(k, e, field, value)
		}
		return out
	}
	return v
}
