package deploy_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const workflows = "../.github/workflows/"

// A workflow has the fields that decide about rights, order and origin. Unmarshal it with
// [readWorkflow].
type workflow struct {
	On          map[string]any    `json:"true"` // YAML 1.1 reads the key "on" so
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]job    `json:"jobs"`
}

type job struct {
	Needs, Environment, If string
	Permissions            map[string]string
	Steps                  []step
}

type step struct {
	Uses, Run, If string
	With          map[string]any
}

func readWorkflow(t *testing.T, text []byte) (w workflow) {
	t.Helper()
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	if len(w.On) == 0 || len(w.Jobs) == 0 {
		t.Fatalf("a workflow without triggers or jobs: %+v", w)
	}
	return w
}

// workflowFiles returns the workflows, and the one for users.
func workflowFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(workflows + "*.y*ml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	return append(files, "../docs/ci/github.yaml")
}

// TestActionsArePinned: a workflow, also the one for users, names an action by the commit, which
// cannot change.
func TestActionsArePinned(t *testing.T) {
	pinned := regexp.MustCompile(`^[\w-]+(/[\w-]+)+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$`)
	commits := make(map[string]string) // by repository and version
	for _, file := range workflowFiles(t) {
		for _, m := range regexp.MustCompile(`(?m)\buses: (.*)$`).FindAllStringSubmatch(string(read(t, file)), -1) {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: %q is not OWNER/ACTION@COMMIT # VERSION", file, m[1])
				continue
			}
			at, version, _ := strings.Cut(m[1], " # ")
			action, commit, _ := strings.Cut(at, "@")
			action = regexp.MustCompile(`^[^/]+/[^/]+`).FindString(action) // it may be a folder below
			if other := commits[action+version]; other != "" && other != commit {
				t.Errorf("%s: %s %s is commit %s, and elsewhere %s", file, action, version, commit, other)
			}
			commits[action+version] = commit
		}
	}
}

// TestCheckoutsKeepNoToken: no workflow leaves its token to the code that it checks out.
func TestCheckoutsKeepNoToken(t *testing.T) {
	for _, file := range workflowFiles(t) {
		for name, j := range readWorkflow(t, read(t, file)).Jobs {
			for _, s := range j.Steps {
				if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false {
					t.Errorf("%s: job %s leaves its token in the checkout", file, name)
				}
			}
		}
	}
}

// TestVerifiedIdentity: the page verifies the identity of this workflow.
func TestVerifiedIdentity(t *testing.T) {
	page := string(read(t, "../docs/verify.md"))
	const identity = "--certificate-identity=https://github.com/nftproxy/nftproxy/.github/workflows/release.yaml@refs/tags/v$VERSION "
	if !strings.Contains(page, identity) {
		t.Errorf("docs/verify.md has no %s", identity)
	}
	if !strings.Contains(string(read(t, workflows+"release.yaml")), "\n    tags: [\"v*\"]\n") {
		t.Error("the workflow does not run for tags, which are in the identity")
	}
}
