package manifest

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const header = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n"

// decode reads all documents as Services and returns their problems.
func decode(t *testing.T, text string) (out Errors) {
	t.Helper()
	docs, err := Split("file", []byte(text))
	if err != nil {
		return Errors{{Place: Place{File: "file"}, Err: err}}
	}
	for _, d := range docs {
		switch o, err := d.Parse(); {
		case err != nil:
			out = append(out, err)
		case o != nil:
			out = append(out, o.Decode(&corev1.Service{})...)
		}
	}
	return out
}

// TestHostile reads inputs that would take very long or fill the memory without
// limits.
func TestHostile(t *testing.T) {
	var ten, chain, wrong strings.Builder
	ten.WriteString("  l0: &l0 x\n")
	chain.WriteString("  l0: &l0 x\n")
	for i := 1; i < 1000; i++ {
		fmt.Fprintf(&chain, "  l%d: &l%d [*l%d]\n", i, i, i-1)
		if i < 20 {
			fmt.Fprintf(&ten, "  l%d: &l%d [%s*l%d]\n", i, i, strings.Repeat(fmt.Sprintf("*l%d,", i-1), 9), i-1)
		}
	}
	for i := range 5000 {
		fmt.Fprintf(&wrong, "  - {port: x%d, nodport: 1, name: [a]}\n", i)
	}
	const aliases, depth = "the aliases of the document repeat", "unknown field"
	for _, c := range []struct{ name, text, want string }{
		{"alias of itself", "&a\napiVersion: v1\nkind: Service\nspec: [*a, *a]\n", aliases},
		{"aliases of aliases", header + ten.String(), aliases},
		{"long chain of aliases", header + chain.String(), aliases},
		{"long text", header + "  x: &x \"" + strings.Repeat("y", 1<<20) + "\"\n  y: [" + strings.Repeat("*x, ", 20_000) + "]\n", aliases},
		{"deep YAML", header + "  x: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "\n", depth},
		{"deep JSON", `{"spec": {"x": ` + strings.Repeat("[", 9900) + strings.Repeat("]", 9900) + "}}", depth},
		{"too deep JSON", `{"spec": ` + strings.Repeat("[", 19900) + strings.Repeat("]", 19900) + "}", "exceeded max depth"},
		{"many mistakes", header + "  ports:\n" + wrong.String(), `line 6): spec.ports[0].port: "x0" is not a whole number`},
		{"NUL in YAML", "a\x00b", "control characters are not allowed"},
		{"NUL in JSON", "{\"a\": \"\x00\"}", `invalid character '\x00'`},
		{"tags", header + "  type: !!binary eA==\n  clusterIP: !x y\n", "spec.clusterIP: y has the tag !x"},
		{"keys", header + "  ? [a]\n  : b\n", "spec: has a field name that is not plain text"},
		{"JSON after JSON", "{}\n{}}", "line 2): broken JSON"},
		{"surrogates", "{\"metadata\": {\"annotations\": {\"a\": \"\\ud83d\\ude00\"}},\n\"spec\": 5}", "line 2): spec: 5 is not an object"},
		{"tabs", "{\n\t\"spec\":\t{\n\t\t\"type\": 5}}", "line 3): spec.type: 5 is not text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := decode(t, c.text)
			if len(got) == 0 || !strings.Contains(Errors(got).Error(), c.want) {
				t.Errorf("got %.500s, want %s", got, c.want)
			}
		})
	}
}

// FuzzDecode checks that any input gives an object or errors that name the file
// and a line of it, without the decoder's own words.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		header + "  ports: [{port: 80, targetPort: x, appProtocol: null}]\n", header + "  <<: {type: x}\n  a: &a [*a]\n",
		"{}\n{\"spec\": {\"ports\": [{\"port\": 1e2}]}}", "--- # a\nmetadata: {creationTimestamp: x}\n...\n%YAML 1.1\n---\nnull", "spec: {type: a, type: 0x10, selector: {1: 08}}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := len(text) // YAML counts more characters as line ends than others do
		for _, e := range decode(t, string(text)) {
			if e.File != "file" || e.Line > lines+1 || e.Document > 0 && e.Line < 1 || strings.Contains(e.Error(), "unmarshal") && !strings.Contains(string(text), "unmarshal") {
				t.Errorf("%v, of %d bytes", e, lines)
			}
		}
	})
}
