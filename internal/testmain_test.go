package internal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryPackageRunsWithoutRoot: tests that make network namespaces run
// without root if their TestMain calls netlab.Run.
func TestEveryPackageRunsWithoutRoot(t *testing.T) {
	tests := make(map[string]string) // by directory
	for _, depth := range []string{"../*", "../*/*", "../*/*/*"} {
		files, err := filepath.Glob(depth + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tests[filepath.Dir(path)] += string(text)
		}
	}
	using := 0
	for dir, text := range tests {
		if !strings.Contains(text, "netlab.Test") || strings.HasPrefix(dir, "../e2e") || dir == "../test/clock" {
			continue // those need root for more
		}
		using++
		if !strings.Contains(text, "netlab.Run(") && !strings.Contains(text, "program.Run(") {
			t.Errorf("%s: no TestMain calls netlab.Run", dir)
		}
	}
	if using < 15 {
		t.Errorf("%d packages use netlab", using)
	}
}
