package internal_test

import (
	"os"
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
	steps := regexp.MustCompile(`(?m)^\s*(?:step|behind [a-z0-9-]+|chrt --idle 0) (make .*)$`).FindAllSubmatch(script, -1)
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
