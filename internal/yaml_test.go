package internal

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// yamlWriters are the packages that write YAML line by line, and quote each text with yamltext.
var yamlWriters = []string{"internal/yamltext", "internal/source/balance", "internal/source/rewrite", "internal/control", "internal/drain", "internal/command/input"}

// yamlField is a field of YAML at the beginning of a line, with a value that a format or a text after it has.
var yamlField = regexp.MustCompile(`(?m)^[-{ ]*(?:kind|name|namespace|listen|servers|backends|address|endpoint|endpoints|balance|server|service|by|since): (%[a-z]|$)`)

// TestYAMLByHand: no other package writes objects as YAML line by line, and texts are never quoted with %q,
// whose escapes are those of Go.
func TestYAMLByHand(t *testing.T) {
	files := token.NewFileSet()
	found := 0
	for _, root := range []string{"../internal", "../cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testkit/") {
				return err
			}
			tree, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING || strings.HasPrefix(literal.Value, "`") {
					return true
				}
				text := strings.NewReplacer(`\n`, "\n", `\"`, `"`).Replace(strings.Trim(literal.Value, `"`))
				m := yamlField.FindStringSubmatch(text)
				if m == nil || !strings.Contains(text, "\n") {
					return true
				}
				found++
				folder := strings.TrimPrefix(filepath.Dir(path), "../")
				if m[1] == "%q" {
					t.Errorf("%s: %s: quote it with yamltext.Quote", files.Position(literal.Pos()), literal.Value)
				}
				for _, w := range yamlWriters {
					if folder == w {
						return true
					}
				}
				t.Errorf("%s: %s: write the object with the Text of its type", files.Position(literal.Pos()), literal.Value)
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 5 {
		t.Errorf("only %d lines of YAML found", found)
	}
}
