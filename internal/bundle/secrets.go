package bundle

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// removed stands where a secret was.
const removed = "(removed)"

// secrets are texts that give access by themselves, with what each has in lower case: most texts have none of it,
// and an expression takes a hundred times as long to say so. The first group of an expression stays.
var secrets = []struct {
	has        []string // one of these
	expression *regexp.Regexp
}{
	{[]string{"-----begin "}, regexp.MustCompile(`()(?s)-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\z)`)},
	// A JSON web token.
	{[]string{"eyj"}, regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`)},
	// A header without its name.
	{[]string{"bearer", "basic", "negotiate"}, regexp.MustCompile(`(?i)(\b(?:bearer|basic|negotiate)[ +]+)[A-Za-z0-9._~+/=-]{6,}`)},
	// The user and password of a URL.
	{[]string{"://"}, regexp.MustCompile(`(://)[^\s/@"']+@`)},
	// A bootstrap token.
	{[]string{"."}, regexp.MustCompile(`()\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)},
	// PEM in base64.
	{[]string{"ls0tls1crudjti"}, regexp.MustCompile(`()\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]*`)},
}

// words are in the names of settings and headers whose values are secret.
const words = `password|passwd|passphrase|secret|token|authorization|api[_-]?key|cookie|credential|client-key-data|client-certificate-data|private[_-]?key`

// stems are parts of all words, in lower case.
var stems = []string{"passw", "passphrase", "secret", "token", "authorization", "key", "cookie", "credential", "client-certificate-data"}

const (
	secretKey = `[\w-]*(?:` + words + `)[\w-]*`
	quoted    = `"(?:[^"\\]|\\.)*(?:"|\z)|'[^']*(?:'|\z)`
)

// settings are values behind a name. The first group of an expression stays.
var settings = []*regexp.Regexp{
	// The words behind a name in the same quotes: "Authorization: Negotiate YII..."
	regexp.MustCompile(`(?i)(["']` + secretKey + `\s*[:=][ \t]*)[^"'\n]+`),
	// A header whose value has words and parameters, within a line: Authorization: Digest username="a", response="b"
	regexp.MustCompile(`(?i)(\b(?:proxy-)?authorization[ \t]*[:=][ \t]*)[^\s"'](?:[^"'=\n]|=(?:"[^"\n]*")?)*`),
	// A value in quotes of its own.
	regexp.MustCompile(`(?i)(["']?` + secretKey + `["']?\s*[:=][ \t]*)(?:` + quoted + `)`),
	// The rest of a line that begins with the name, as in YAML and in headers.
	regexp.MustCompile(`(?im)(^[ \t]*(?:- +)*` + secretKey + `[ \t]*:[ \t]*)[^\s"'|>{\[].*$`),
	regexp.MustCompile(`(?im)(^[ \t]*(?:export +)?` + secretKey + `[ \t]*=[ \t]*)[^\s"'][^=\n]*$`),
	// Words within a line, up to a separator: {password: correct horse, user: a}
	regexp.MustCompile(`(?i)(\b` + secretKey + `:[ \t]+)[^\s,;"'|>{}\[\]][^,;"'{}\[\]\n]*`),
	// One word.
	regexp.MustCompile(`(?i)(` + secretKey + `["']?\s*[:=][ \t]*)[^\s,;"'|>{}\[\]]+`),
	// The argument behind a flag, in a command line or a list: --password hunter2, [check, --password, hunter2]
	regexp.MustCompile(`(?i)((?:^|[\s"'\[,])--?` + secretKey + `["']?(?:[ \t]*,\s*|\s+(?:-[ \t]+)?))(?:` + quoted + `|[^\s,\]"'-][^\s,\]"']*)`),
}

// WithoutSecrets returns a text without passwords, keys and tokens.
func WithoutSecrets(text string) string {
	lower := foldCase(text)
	for _, s := range secrets {
		if hasOne(lower, s.has) {
			text = s.expression.ReplaceAllString(text, "${1}"+removed)
		}
	}
	if !hasOne(lower, stems) {
		return text
	}
	text = withoutBlocks(text)
	for _, s := range settings {
		text = s.ReplaceAllString(text, `${1}"`+removed+`"`)
	}
	return text
}

// foldCase returns a text in lower case, also of the letters outside of ASCII that (?i) takes for "s" and "k".
func foldCase(text string) string {
	return strings.ReplaceAll(strings.ToLower(text), "\u017f", "s")
}

func hasOne(text string, of []string) bool {
	return slices.ContainsFunc(of, func(s string) bool { return strings.Contains(text, s) })
}

// blockKey is the line of a secret whose value is in the lines below, which have a deeper indentation:
// in all of them behind "|" or ">", else in those that are no setting and no entry of a list. The first
// group is what stands before the name.
var (
	blockKey = regexp.MustCompile(`(?i)^([ \t]*(?:- +)*)["']?` + secretKey + `["']?[ \t]*:[ \t]*([|>][-+0-9]*)?[ \t]*(?:#.*)?(.*?)\s*$`)
	nested   = regexp.MustCompile(`^\s*(?:- |-$|["']?[\w./-]+["']?:(?:\s|$))`)
)

// withoutBlocks replaces values that have lines of their own.
func withoutBlocks(text string) string {
	if !strings.Contains(text, "\n") {
		return text
	}
	var out strings.Builder
	inside, all, said := -1, false, false // the indentation of the name, or -1
	for line := range strings.Lines(text) {
		indentation := len(line) - len(strings.TrimLeft(line, " \t"))
		empty := strings.TrimSpace(line) == ""
		if inside >= 0 && (empty && all || !empty && indentation > inside && (all || !nested.MatchString(line))) {
			if !said {
				out.WriteString(strings.Repeat(" ", inside+1) + removed + "\n")
			}
			said = true
			continue
		}
		if inside = -1; !empty {
			if m := blockKey.FindStringSubmatch(line); m != nil {
				inside, all, said = len(m[1]), m[2] != "", m[2] == "" && m[3] != ""
			}
		}
		out.WriteString(line)
	}
	return out.String()
}

// secretName is the name of a field whose text is secret, and secretFlag an argument whose successor is.
var (
	secretName = regexp.MustCompile(`(?i)(?:` + words + `)`)
	secretFlag = regexp.MustCompile(`(?i)^--?` + secretKey + `$`)
)

// WithoutSecretsJSON returns a JSON document without them. It looks into texts in it, such as
// the files of a ConfigMap.
func WithoutSecretsJSON(text string) string {
	if structures, values := budget.IsDense([]byte(text)); structures || values { // it would take many times its size as values
		return WithoutSecrets(text)
	}
	var out strings.Builder
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	for d.More() {
		var v any
		if d.Decode(&v) != nil { // a text that is cut, or none
			return WithoutSecrets(text)
		}
		b, _ := json.MarshalIndent(valueWithoutSecrets("", v), "", " ") // decoded values have no other types
		out.Write(append(b, '\n'))
	}
	return out.String()
}

// valueWithoutSecrets returns a value of JSON without them. name is that of its field, or the flag before
// it in a list of arguments.
func valueWithoutSecrets(name string, v any) any {
	switch v := v.(type) {
	case string:
		if v != "" && secretName.MatchString(name) {
			return removed
		}
		return WithoutSecrets(v)
	case []any:
		flag := ""
		for i, e := range v {
			of := name
			if flag != "" {
				of = flag
			}
			flag = ""
			if s, ok := e.(string); ok && secretFlag.MatchString(s) {
				flag = s
			}
			v[i] = valueWithoutSecrets(of, e)
		}
	case map[string]any:
		for k, e := range v {
			v[k] = valueWithoutSecrets(k, e)
		}
	}
	return v
}
