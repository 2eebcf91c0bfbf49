package internal_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const features = "internal/feature/"

// TestFeaturesAreImportedByTheTable: no package but the table imports a feature.
func TestFeaturesAreImportedByTheTable(t *testing.T) {
	for _, p := range packages(t) {
		for _, i := range p.imports {
			name, isFeature := strings.CutPrefix(i, features)
			if isFeature && !strings.HasPrefix(name, "table") && !strings.HasPrefix(p.name, features+"table") {
				t.Errorf("%s imports %s: features find each other by feature.Find, and the process finds them in the table", p.name, i)
			}
		}
	}
}

// TestFeaturesAreRemovable: without the folder of a feature, and without its import and row, the table compiles. Nothing
// else knows the feature.
func TestFeaturesAreRemovable(t *testing.T) {
	tables := make(map[string][]byte)
	for _, name := range []string{"feature/table/table.go", "feature/table/editors/editors.go"} {
		var err error
		if tables[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("feature/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var folders []string
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\ntype Kind struct") {
			folders = append(folders, filepath.Dir(file))
		}
	}
	if len(folders) < 13 {
		t.Fatalf("%d features", len(folders))
	}
	for _, folder := range folders {
		name := filepath.Base(folder)
		t.Run(name, func(t *testing.T) {
			lines := regexp.MustCompile(`(?m)^.*(/feature/` + name + `"|Kind: ` + name + `\.Kind\{\}).*\n`)
			replaced := make(map[string]string)
			for table, text := range tables {
				switch n := len(lines.FindAll(text, -1)); n {
				case 0:
					continue
				case 2:
				default:
					t.Fatalf("%d lines of %s are about it, want an import and a row", n, table)
				}
				without := filepath.Join(t.TempDir(), "table.go")
				if err := os.WriteFile(without, lines.ReplaceAll(text, nil), 0o600); err != nil {
					t.Fatal(err)
				}
				replaced[filepath.Join(root, table)] = without
			}
			if len(replaced) != 1 {
				t.Fatalf("%d tables have it, want one", len(replaced))
			}
			files, err := filepath.Glob(folder + "/*.go")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				replaced[filepath.Join(root, file)] = "" // it is not there
			}
			overlay, err := json.Marshal(map[string]any{"Replace": replaced})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "overlay.json")
			if err := os.WriteFile(path, overlay, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("go", "build", "-overlay="+path, "./feature/table/...").CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
