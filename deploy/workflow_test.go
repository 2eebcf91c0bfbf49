package deploy_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const workflows = "../.github/workflows/"

type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Steps       []struct {
			Uses, Run string
			With      map[string]any
		}
	}
}

// TestActionsArePinned: a workflow, also the one for users, names an action by the commit, which
// cannot change.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob(workflows + "*.y*ml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	pinned := regexp.MustCompile(`^[\w-]+(/[\w-]+)+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$`)
	commits := make(map[string]string) // by repository and version
	for _, file := range append(files, "../docs/ci/github.yaml") {
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

// TestReleaseRights: each job of the release has the rights that it needs, and none of
// those that build or run the product can write or sign.
func TestReleaseRights(t *testing.T) {
	var w workflow
	if err := yaml.Unmarshal(read(t, workflows+"release.yaml"), &w); err != nil {
		t.Fatal(err)
	}
	if w.Permissions == nil || len(w.Permissions) != 0 {
		t.Errorf("all jobs have the rights %v", w.Permissions)
	}
	want := map[string]map[string]string{
		"build":   {"contents": "read"},
		"publish": {"contents": "read", "packages": "write", "id-token": "write"},
		"verify":  {"contents": "read", "packages": "read"},
		"release": {"contents": "write"},
	}
	if got := slices.Sorted(maps.Keys(w.Jobs)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("jobs %v", got)
	}
	for name, job := range w.Jobs {
		if !maps.Equal(job.Permissions, want[name]) {
			t.Errorf("job %s has the rights %v, want %v", name, job.Permissions, want[name])
		}
		for _, s := range job.Steps {
			if name != "build" && strings.Contains(s.Run, "make ") {
				t.Errorf("job %s builds: %s", name, s.Run)
			}
			if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false {
				t.Errorf("job %s leaves its token in the checkout", name)
			}
			if strings.HasPrefix(s.Uses, "actions/setup-go@") && s.With["cache"] != false {
				t.Errorf("job %s uses what other runs have cached", name)
			}
			if strings.Contains(s.Run, "${{") {
				t.Errorf("job %s puts a value into a script: %s", name, s.Run)
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
