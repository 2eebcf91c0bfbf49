package internal_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the drawings of docs/architecture.md")

const architecture = "../docs/architecture.md"

// listed is a package as "go list" knows it.
type listed struct {
	name    string // from the module's root, for example "internal/model"
	doc     string // the first sentence of its documentation
	imports []string
}

// packages returns those of cmd and internal that the product is made of.
func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}}|{{.Doc}}|{{join .Imports \" \"}}", "../cmd/...", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	root := strings.TrimSuffix(module, "internal/")
	var all []listed
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Split(lines.Text(), "|")
		p := listed{name: strings.TrimPrefix(fields[0], root), doc: fields[1]}
		for _, i := range strings.Fields(fields[2]) {
			if name, ours := strings.CutPrefix(i, root); ours {
				p.imports = append(p.imports, name)
			}
		}
		if !strings.HasPrefix(p.name, forTests) {
			all = append(all, p)
		}
	}
	return all
}

// forTests is the folder of packages that the program does not import.
const forTests = "internal/testkit/"

// floors puts packages in order: each one above all that it imports. It fails if
// imports form a cycle.
func floors(t *testing.T, all []listed) map[string]int {
	t.Helper()
	floor := make(map[string]int)
	for range len(all) + 1 {
		settled := true
		for _, p := range all {
			for _, i := range p.imports {
				if floor[p.name] <= floor[i] {
					floor[p.name], settled = floor[i]+1, false
				}
			}
		}
		if settled {
			return floor
		}
	}
	t.Fatal("imports form a cycle")
	return nil
}

// drawing draws the imports that do not follow from others.
func drawing(t *testing.T, all []listed) string {
	t.Helper()
	imports := make(map[string][]string)
	for _, p := range all {
		imports[p.name] = p.imports
	}
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		return slices.ContainsFunc(imports[from], func(i string) bool { return i == to || reaches(i, to) })
	}
	short := func(name string) string { return strings.TrimPrefix(strings.TrimPrefix(name, "internal/"), "cmd/") }
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TD\n")
	for _, p := range all {
		for _, i := range p.imports {
			if !slices.ContainsFunc(p.imports, func(o string) bool { return o != i && reaches(o, i) }) {
				fmt.Fprintf(&b, "    %s --> %s\n", short(p.name), short(i))
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// table lists the packages from the top floor down, each with its purpose and
// all of ours that it imports.
func table(all []listed, floor map[string]int) string {
	slices.SortFunc(all, func(a, b listed) int {
		if d := floor[b.name] - floor[a.name]; d != 0 {
			return d
		}
		return strings.Compare(a.name, b.name)
	})
	var b strings.Builder
	b.WriteString("| package | purpose | imports |\n|---|---|---|\n")
	for _, p := range all {
		doc := strings.TrimPrefix(p.doc, "Package "+p.name[strings.LastIndex(p.name, "/")+1:]+" ")
		var imports []string
		for _, i := range p.imports {
			imports = append(imports, strings.TrimPrefix(i, "internal/"))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.name, strings.TrimSuffix(doc, "."), strings.Join(imports, ", "))
	}
	return b.String()
}

// TestArchitecture keeps the drawings in docs/architecture.md in step with the
// code. With -update it draws them again.
func TestArchitecture(t *testing.T) {
	all := packages(t)
	floor := floors(t, all)
	text, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	for mark, drawn := range map[string]string{"imports": drawing(t, all), "packages": table(all, floor)} {
		begin, end := "<!-- begin "+mark+" -->\n", "<!-- end "+mark+" -->"
		head, rest, ok := strings.Cut(want, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has no place for %s", architecture, mark)
		}
		want = head + begin + "\n" + drawn + "\n" + end + tail
	}
	switch {
	case want == string(text):
	case *update:
		if err := os.WriteFile(architecture, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s shows other packages or imports than there are: run go test ./internal -update", architecture)
	}
}
