package internal_test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// files returns the files of the repository whose names match a pattern, with slashes.
func files(t *testing.T, pattern string) (out []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if ok, _ := path.Match(pattern, d.Name()); ok && !d.IsDir() {
			out = append(out, strings.TrimPrefix(filepath.ToSlash(file), "../"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func content(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUpdates: dependabot looks into every module, every workflow and every Dockerfile.
func TestUpdates(t *testing.T) {
	var config struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directory   string
			Directories []string
		}
	}
	if err := yaml.Unmarshal([]byte(content(t, ".github/dependabot.yml")), &config); err != nil {
		t.Fatal(err)
	}
	patterns := make(map[string][]string)
	for _, u := range config.Updates {
		patterns[u.Ecosystem] = append(patterns[u.Ecosystem], append(u.Directories, u.Directory)...)
	}
	for ecosystem, name := range map[string]string{"gomod": "go.mod", "docker": "Dockerfile"} {
		found := files(t, name)
		if len(found) == 0 {
			t.Errorf("no %s", name)
		}
		for _, file := range found {
			dir := path.Join("/", path.Dir(file))
			if !slices.ContainsFunc(patterns[ecosystem], func(p string) bool { ok, _ := path.Match(p, dir); return ok }) {
				t.Errorf("%s is in no directory of %s in .github/dependabot.yml: %v", file, ecosystem, patterns[ecosystem])
			}
		}
	}
	if !slices.Contains(patterns["github-actions"], "/") {
		t.Error("the actions are not updated")
	}
}

// TestFuzzTargets: the build for ClusterFuzzLite, which "make fuzz-libfuzzer" tries, has each fuzz
// target of the main module, under a name of its own.
func TestFuzzTargets(t *testing.T) {
	var want []string
	for _, file := range files(t, "*_test.go") {
		if top, _, _ := strings.Cut(file, "/"); top != "internal" && top != "cmd" {
			continue
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`).FindAllStringSubmatch(content(t, file), -1) {
			want = append(want, path.Dir(file)+" "+file+" "+m[1])
		}
	}
	out, err := exec.Command("../scripts/fuzz-targets").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	var got []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		got, names[fields[3]] = append(got, strings.Join(fields[:3], " ")), true
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) < 20 || !slices.Equal(want, got) {
		t.Errorf("targets of the build\n%s\nof the module\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(names) != len(got) {
		t.Errorf("%d targets have %d names: %v", len(got), len(names), slices.Sorted(maps.Keys(names)))
	}
}

// TestReleases: "make upgrade" starts from each release of the changelog. The one that is
// being prepared has no commit yet: nothing is unreleased then.
func TestReleases(t *testing.T) {
	list := content(t, "test/releases/list")
	entry := regexp.MustCompile(`(?m)^([0-9]+\.[0-9]+\.[0-9]+) (v[0-9.]+|[0-9a-f]{40})$`)
	for line := range strings.Lines(list) {
		if !strings.HasPrefix(line, "#") && !entry.MatchString(line) {
			t.Errorf("test/releases/list has the line %q", line)
		}
	}
	changes := content(t, "CHANGELOG.md")
	_, unreleased, _ := strings.Cut(changes, "\n## Unreleased\n")
	unreleased, _, _ = strings.Cut(unreleased, "\n## ")
	released := regexp.MustCompile(`(?m)^## ([0-9]+\.[0-9]+\.[0-9]+) - `).FindAllStringSubmatch(changes, -1)
	if len(released) == 0 {
		t.Fatal("the changelog has no release")
	}
	if strings.TrimSpace(unreleased) == "" {
		released = released[1:]
	}
	for _, r := range released {
		if !strings.Contains("\n"+list, "\n"+r[1]+" ") {
			t.Errorf("test/releases/list lacks %s", r[1])
		}
	}
}
