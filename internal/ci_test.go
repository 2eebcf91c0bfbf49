package internal_test

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestWorkflow: each step of .ci/run is a job of the workflow.
func TestWorkflow(t *testing.T) {
	script, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	workflow, err := os.ReadFile("../.github/workflows/ci.yaml")
	if err != nil {
		t.Fatal(err)
	}
	steps := regexp.MustCompile(`(?m)^\s*(?:(?:step|behind [a-z0-9-]+|chrt --idle 0) )+(make .*)$`).FindAllSubmatch(script, -1)
	if len(steps) < 7 {
		t.Fatalf("%d steps are in the script", len(steps))
	}
	// Of several commands of a job, each ends with the line or "&&".
	jobs := strings.ReplaceAll(string(workflow), " && ", "\n run: ")
	for _, s := range steps {
		if !strings.Contains(jobs, " run: "+string(s[1])+"\n") {
			t.Errorf("no job runs %q", s[1])
		}
	}
	if n := strings.Count(string(script), "make "); n != len(steps) {
		t.Errorf("%d commands begin with make, and %d of them are steps", n, len(steps))
	}
}

// TestWithoutRaceDetector: tests that the race detector would disturb, such as those of allocations, run in make test:
// they are in packages that it runs without the detector.
func TestWithoutRaceDetector(t *testing.T) {
	cmd := exec.Command("scripts/packages-of", "race")
	cmd.Dir = ".."
	packages, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	if !strings.Contains(string(packages), "/internal/parallel\n") {
		t.Errorf("packages with goroutines are %s", packages)
	}
	found := 0
	for _, file := range files(t, "*_test.go") {
		if !strings.Contains(content(t, file), "\n//go:build !race\n") {
			continue
		}
		found++
		if name := "github.com/nftproxy/nftproxy/" + path.Dir(file) + "\n"; strings.Contains(string(packages), name) {
			t.Errorf("%s never runs: make test runs its package with the race detector alone", file)
		}
	}
	if found == 0 {
		t.Error("no file is built without the race detector alone")
	}
}
