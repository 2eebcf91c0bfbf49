package yamltext

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// FuzzQuote: a quoted text reads back equal, alone, and inside brackets and braces.
func FuzzQuote(f *testing.F) {
	for _, text := range []string{"", "/x?y=1", "?", "a?", "*a", "&a", "!t", "| x", "> x", "%a", "@a", "`a", "a: b", "a #b", "a:", "- a", "~", "null", "yes", "1e3", "0x1", "[", "{", "'", `"`, " a ", "a\r\nb", "é", "\x8c!", "\u0085", "\x00", "\x7f", ":0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got struct {
			A []string
			B map[string]string
			C string
		}
		q := Quote(text)
		text = strings.ToValidUTF8(text, "\ufffd")
		file := "a: [" + q + "]\nb: {x: " + q + "}\nc: " + q + "\n"
		if err := yaml.Unmarshal([]byte(file), &got); err != nil {
			t.Fatalf("%q: %v in %s", text, err, file)
		}
		if got.A[0] != text || got.B["x"] != text || got.C != text {
			t.Errorf("%q reads back as %q in %s", text, got, file)
		}
	})
}
