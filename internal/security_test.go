package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityPage finds every test that docs/security.md names.
func TestSecurityPage(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	missing := make(map[string]bool)
	for _, name := range regexp.MustCompile("Test[A-Z][A-Za-z]+").FindAllString(string(page), -1) {
		missing[name] = true
	}
	if len(missing) < 15 {
		t.Errorf("the page names %d tests", len(missing))
	}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			delete(missing, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for name := range missing {
		t.Errorf("there is no %s", name)
	}
}
