package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChunks(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "1:",
		"a\n":                             "1:a|",
		"a\n---\nb":                       "1:a| 2:---|b",
		"---\na\n--- b\n---c\n":           "1: 1:---|a| 3:---.b|---c|",
		"a\r\n---\r\nb":                   "1:a\r| 2:---\r|b",
		"a\n...\nb\n":                     "1:a| 3:b|",
		"%YAML 1.2\n# x\n\n---\na\n---\n": "1:%YAML.1.2|#.x||---|a| 6:---|",
		"a: |\n  ---\n  b\n":              "1:a:.||..---|..b|",
		"%a\n%b\n---\nc":                  "1:%a|%b|---|c",
	} {
		var got []string
		for _, c := range splitChunks([]byte(in)) {
			got = append(got, fmt.Sprintf("%d:%s", c.line, strings.NewReplacer("\n", "|", " ", ".").Replace(string(c.text))))
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("chunks(%q) (-want +got):\n%s", in, diff)
		}
	}
}
