package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSBOM makes the bill of a program of this module twice, and checks
// what the schema of CycloneDX 1.6 asks for.
func TestSBOM(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo")
	// Without -trimpath, for which every package would be compiled once more.
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../demo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var texts []string
	for range 2 {
		if err := write(path); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path + ".cdx.json")
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if texts[0] != texts[1] {
		t.Error("the same program has two bills")
	}
	var b bom
	if err := json.Unmarshal([]byte(texts[0]), &b); err != nil {
		t.Fatal(err)
	}
	if b.Format != "CycloneDX" || b.SpecVersion != "1.6" || b.Version != 1 {
		t.Errorf("is %s %s, version %d", b.Format, b.SpecVersion, b.Version)
	}
	if serial := regexp.MustCompile("^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"); !serial.MatchString(b.SerialNumber) {
		t.Errorf("serial number %s", b.SerialNumber)
	}
	checkComponents(t, &b)
	checkModules(t, path, &b)
}

// checkComponents: each has a type, a name and a reference of its own, and the
// program depends on all of them.
func checkComponents(t *testing.T, b *bom) {
	t.Helper()
	refs := map[string]bool{b.Metadata.Component.Ref: true}
	for _, c := range b.Components {
		if c.Type != "library" || c.Name == "" || c.Version == "" || !strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@") {
			t.Errorf("component %+v", c)
		}
		if refs[c.Ref] {
			t.Errorf("%s is there twice", c.Ref)
		}
		refs[c.Ref] = true
	}
	if len(b.Dependencies) != 1 || b.Dependencies[0].Ref != b.Metadata.Component.Ref || len(b.Dependencies[0].DependsOn) != len(b.Components) {
		t.Errorf("dependencies %+v", b.Dependencies)
	}
	for _, ref := range b.Dependencies[0].DependsOn {
		if !refs[ref] {
			t.Errorf("depends on %s, which is no component", ref)
		}
	}
}

// checkModules compares with what the toolchain says that is in the program.
func checkModules(t *testing.T, path string, b *bom) {
	t.Helper()
	out, err := exec.Command("go", "version", "-m", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for _, c := range b.Components {
		listed[c.Name+" "+c.Version] = true
	}
	modules := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(out), -1)
	if len(modules) < 3 {
		t.Errorf("%d modules", len(modules))
	}
	for _, m := range modules {
		if !listed[m[1]+" "+m[2]] {
			t.Errorf("%s %s is missing", m[1], m[2])
		}
	}
	if len(listed) != len(modules)+1 {
		t.Errorf("%d components, want %d modules and the standard library", len(listed), len(modules))
	}
}
