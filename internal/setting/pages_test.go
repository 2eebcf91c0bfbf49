package setting

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/words"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/annotations.md and docs/standalone.md")

// TestPages compares the tables of the pages with the rows. "make docs" writes them.
func TestPages(t *testing.T) {
	const begin, end = "<!-- begin settings -->\n", "<!-- end settings -->"
	for path, table := range map[string]string{"../../docs/annotations.md": annotationTable(), "../../docs/standalone.md": fieldTable()} {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, _ := strings.Cut(string(page), begin)
		_, after, found := strings.Cut(rest, end)
		want := before + begin + "\n" + table + "\n" + end + after
		switch {
		case !found:
			t.Fatalf("%s lacks %q or %q", path, begin, end)
		case want == string(page):
		case *update:
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s does not match the rows: run \"make docs\"", path)
		}
	}
}

func annotationTable() string {
	out := "| annotation | value | meaning |\n|---|---|---|\n"
	for _, s := range All {
		if s.Annotation != "" {
			out += fmt.Sprintf("| `%s` | %s | %s |\n", s.Annotation, s.values(false), s.explained(words.Kubernetes))
		}
	}
	return out
}

func fieldTable() string {
	out := "| field | value | meaning |\n|---|---|---|\n"
	for _, s := range All {
		if s.Field != "" {
			out += fmt.Sprintf("| `%s` | %s | %s |\n", s.Field, s.values(s.Form == List), s.explained(words.Balance))
		}
	}
	return out
}

// values returns the words or examples in Markdown: as lists of YAML, or as they are.
func (s *Setting) values(lists bool) string {
	var out []string
	for _, text := range slices.Concat(s.Words, s.Examples) {
		if lists {
			text = "[" + strings.ReplaceAll(text, ",", ", ") + "]"
		}
		out = append(out, "`"+text+"`")
	}
	return strings.Join(out, ", ")
}

var flagName = regexp.MustCompile(`--[a-z-]+[a-z]`)

func (s *Setting) explained(in words.Vocabulary) string {
	return in.Text(flagName.ReplaceAllString(s.Meaning, "`$0`") + s.More)
}
