package rules

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestDiffFrom compares two inputs (12.66): 0 without changes, 1 with some, and no kernel.
func TestDiffFrom(t *testing.T) {
	ns := netlab.TestNamespace(t)
	before := ns.TestGeneration(t)
	old, dir := commandline.WriteFile(t, commandline.Service), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "new.yaml"), []byte(strings.Replace(commandline.Service, "10.128.1.2", "10.128.1.9", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	want := `Services: 1 changed.
  ~ default/web: 1 endpoint replaced (10.128.1.2:8080 → 10.128.1.9:8080)

table ip nftproxy
  ~ map endpoints      10.96.0.10 . tcp . 80 . 0:2 : 10.128.1.2 . 8080 -> 10.128.1.9 . 8080  # default/web:http

0 to add, 1 to change, 0 to delete.
`
	for name, args := range map[string][]string{
		"a file and a directory": {"--from", old, "-f", dir},
		"a directory and a file": {"--from", dir, "-f", old},
		"the same":               {"--from", old, "-f", commandline.WriteFile(t, commandline.Service+"# a comment\n")},
	} {
		r := program.RunIn(t, ns, append([]string{"diff", "--hostname-override", "node-1"}, args...)...)
		expected, code := want, cli.CodeNo
		switch name {
		case "the same":
			expected, code = "No changes.\n", 0
		case "a directory and a file":
			swap := strings.NewReplacer("10.128.1.2", "10.128.1.9", "10.128.1.9", "10.128.1.2")
			expected = swap.Replace(want)
		}
		if r.Code != code || r.Stderr != "" || slotless(r.Stdout) != slotless(expected) {
			t.Errorf("%s: code %d, %s%s", name, r.Code, r.Stderr, cmp.Diff(expected, r.Stdout))
		}
	}
	if after := ns.TestGeneration(t); after != before {
		t.Error("the kernel has changed")
	}
	if r := program.Run(commandline.Service, "diff", "--from", "-", "-f", dir); r.Code != cli.CodeNo || !strings.HasPrefix(r.Stdout, "Services: 1 changed.") {
		t.Errorf("from standard input: code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// slotless hides the number of a slot.
func slotless(text string) string {
	return strings.NewReplacer("80 . 0:1 ", "80 . ", "80 . 0:2 ", "80 . ").Replace(text)
}

// TestDiffFromFlags: flags about the node and the pods apply to both inputs, and
// warnings are about the new one.
func TestDiffFromFlags(t *testing.T) {
	old := commandline.WriteFile(t, commandline.Service+"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n")
	changed := commandline.WriteFile(t, strings.Replace(commandline.Service, "80}", "80, nodePort: 30080}", 1)+"---\n"+commandline.Node)
	r := program.Run("", "diff", "--from", old, "-f", changed, "--hostname-override", "node-1", "--cluster-cidr", "10.128.0.0/9")
	if r.Code != cli.CodeNo || strings.Contains(r.Stdout, "masquerade") || r.Stderr != "" ||
		!strings.Contains(r.Stdout, "1 frontend added (tcp 192.168.7.1:30080 (NodePort))") {
		t.Errorf("code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// TestDiffFromErrors: an error names the side.
func TestDiffFromErrors(t *testing.T) {
	good, bad := commandline.WriteFile(t, commandline.Service), commandline.WriteFile(t, "kind: [")
	for _, c := range []struct{ args, want string }{
		{"--from BAD -f GOOD", "nftproxy: --from: BAD"},
		{"--from GOOD -f BAD", "nftproxy: -f: BAD"},
		{"--from missing.yaml -f BAD", "nftproxy: --from: missing.yaml"},
		{"--from missing.yaml -f BAD", "\n-f: BAD"},
		{"--from GOOD", "nftproxy: no input"},
		{"--from - -f -", "standard input can be read once"},
		{"--from GOOD --from GOOD -f GOOD", "--from: GOOD: is given twice"},
		{"-f GOOD -f GOOD", "give the old one with --from: nftproxy diff --from OLD -f NEW"},
		{"--from GOOD -f GOOD -o xml", `--output: unknown format "xml": use text, json, yaml or markdown`},
		{"--from GOOD -f GOOD --elements some", `--elements: unknown value "some": use auto, always or never`},
		{"-f GOOD -f COPY", "give the old one with --from"},
	} {
		paths := strings.NewReplacer("GOOD", good, "BAD", bad, "COPY", commandline.WriteFile(t, commandline.Service))
		r := program.Run("", append([]string{"diff"}, strings.Fields(paths.Replace(c.args))...)...)
		if r.Code != cli.CodeError || r.Stdout != "" || !strings.Contains(r.Stderr, paths.Replace(c.want)) {
			t.Errorf("diff %s: code %d, no %q in %s%s", c.args, r.Code, c.want, r.Stdout, r.Stderr)
		}
	}
}

// TestDiffFromIsTheKernelsPlan: a plan between two inputs is the one of a node that
// runs with the first, in each golden case with a change, with the same slots.
func TestDiffFromIsTheKernelsPlan(t *testing.T) {
	cases, err := filepath.Glob("../../../golden/change-*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, path := range cases {
		inputs, flags := goldenInputs(t, path)
		if strings.Contains(flags, "addresses") { // those of the machine's interfaces
			continue
		}
		ns := netlab.TestNamespace(t)
		args := append(strings.Fields(flags), "--hostname-override", "node-1", "-f")
		for i := range inputs[1:] {
			if r := program.RunIn(t, ns, append(append([]string{"apply"}, args...), inputs[i])...); r.Code != 0 {
				t.Fatalf("%s: %s", path, r.Stderr)
			}
			kernel := program.RunIn(t, ns, append(append([]string{"diff", "-o", "json"}, args...), inputs[i+1])...)
			files := program.RunIn(t, ns, append(append([]string{"diff", "-o", "json", "--from", inputs[i]}, args...), inputs[i+1])...)
			if diff := cmp.Diff(changesOf(t, kernel), changesOf(t, files)); diff != "" && i == 0 { // later, its history counts
				t.Errorf("%s: -kernel +files:\n%s", path, diff)
			}
			compared++
		}
	}
	if compared < 8 {
		t.Errorf("only %d changes", compared)
	}
}

// goldenInputs returns files with the inputs of a golden case, and its flags.
func goldenInputs(t *testing.T, path string) (files []string, flags string) {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	base := ""
	for _, f := range a.Files {
		switch f.Name {
		case "flags":
			flags = string(f.Data)
		case "base.yaml":
			base = string(f.Data) + "---\n"
		case "input.yaml":
			files = append(files, commandline.WriteFile(t, base+string(f.Data)))
		}
	}
	return files, flags
}

func changesOf(t *testing.T, r commandline.Result) any {
	t.Helper()
	var out struct{ Changes, Summary any }
	if err := json.Unmarshal([]byte(r.Stdout), &out); err != nil || r.Code == cli.CodeError {
		t.Fatalf("code %d, %v, %s%s", r.Code, err, r.Stdout, r.Stderr)
	}
	return out
}

// TestDiffJSON: what changes by Service, as data.
func TestDiffJSON(t *testing.T) {
	r := program.Run("", "diff", "--from", commandline.WriteFile(t, commandline.Service), "-f", commandline.WriteFile(t, strings.Replace(commandline.Service, "10.128.1.2", "10.128.1.9", 1)), "-o", "json")
	var got struct {
		Changes  []map[string]string
		Summary  map[string]int
		Services []struct {
			Service, Action string
			Elements        int
			Details         []struct {
				Kind, Text     string
				Added, Removed []string
				Connections    string
			}
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || r.Code != cli.CodeNo {
		t.Fatalf("code %d, %v, %s", r.Code, err, r.Stdout)
	}
	s := got.Services[0]
	if len(got.Services) != 1 || s.Service != "default/web" || s.Action != "change" || s.Elements != 1 || len(s.Details) != 1 || got.Summary["change"] != 1 {
		t.Fatalf("%+v", got)
	}
	if d := s.Details[0]; d.Kind != "endpoints" || d.Text != "1 endpoint replaced (10.128.1.2:8080 → 10.128.1.9:8080)" || d.Connections == "" ||
		!slices.Equal(d.Added, []string{"10.128.1.9:8080"}) || !slices.Equal(d.Removed, []string{"10.128.1.2:8080"}) {
		t.Errorf("%+v", d)
	}
}

// many returns Services with two endpoints each.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.NewReplacer("name: web", fmt.Sprintf("name: web-%d", i), "service-name: web", fmt.Sprintf("service-name: web-%d", i),
			"10.96.0.10", fmt.Sprintf("10.97.%d.%d", i/250, i%250)).Replace(commandline.Service) + "---\n")
	}
	return b.String()
}

// TestElements: 12.67, a large plan lists some Services, and elements on request.
func TestElements(t *testing.T) {
	none, path := commandline.WriteFile(t, commandline.Service), commandline.WriteFile(t, commandline.Service+"---\n"+many(300))
	for elements, want := range map[string]struct{ services, elements int }{
		"auto": {listedServices, 0}, "always": {300, 1200}, "never": {300, 0},
	} {
		r := program.Run("", "diff", "--from", none, "-f", path, "--elements", elements)
		if n := strings.Count(r.Stdout, "  + default/web-"); n != want.services {
			t.Errorf("%s: %d Services", elements, n)
		}
		if n := strings.Count(r.Stdout, " + map ") + strings.Count(r.Stdout, " + set "); want.elements == 0 && n != 0 || n < want.elements {
			t.Errorf("%s: %d elements", elements, n)
		}
		hints := strings.Count(r.Stdout, "--elements=always lists them") + strings.Count(r.Stdout, "and 250 Services more: 250 added")
		if r.Code != cli.CodeNo || hints != map[string]int{"auto": 2}[elements] || !strings.HasSuffix(r.Stdout, " to add, 0 to change, 0 to delete.\n") {
			t.Errorf("%s: code %d, %d hints, %s", elements, r.Code, hints, r.Stdout[max(0, len(r.Stdout)-300):])
		}
	}
}

// TestDiffFromIsolated: 12.66. --isolate-files is about both inputs: a file with a mistake is
// left out of each.
func TestDiffFromIsolated(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yaml": commandline.Service, "b.yaml": "kind: ["} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := program.Run("", "diff", "--from", dir, "-f", dir); r.Code != cli.CodeError || !strings.Contains(r.Stderr, "--from: ") {
		t.Errorf("code %d, %s", r.Code, r.Stderr)
	}
	if r := program.Run("", "diff", "--from", dir, "-f", dir, "--isolate-files"); r.Code != 0 || r.Stdout != "No changes.\n" || !strings.Contains(r.Stderr, "(the file is left out)") {
		t.Errorf("code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
}
