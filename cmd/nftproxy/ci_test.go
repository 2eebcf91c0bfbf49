package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const ciPage = "../../docs/ci.md"

// ciRepository is a git repository with a pull request: the input is changed since the
// branch origin/main. The programs that a runner has are in front of the others.
type ciRepository struct {
	dir, bin string
	env      []string
}

func newCIRepository(t *testing.T) *ciRepository {
	t.Helper()
	r := &ciRepository{dir: t.TempDir(), bin: t.TempDir()}
	r.env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GIT_") }),
		"PATH="+r.bin+":"+os.Getenv("PATH"), "HOME="+r.bin, "KUBERNETES_SERVICE_HOST=",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	r.program(t, "nftproxy", beProgram+`=1 exec `+program+` "$@"`)
	r.input(t, "before")
	r.run(t, "git init -q -b main && git add services && git commit -qm before")
	r.run(t, "git update-ref refs/remotes/origin/main HEAD && git remote add origin . && git checkout -qb change")
	r.input(t, "after")
	r.run(t, "git commit -qam after")
	return r
}

// program adds a program.
func (r *ciRepository) program(t *testing.T, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// input is the state of the input from testdata.
func (r *ciRepository) input(t *testing.T, state string) {
	t.Helper()
	data, err := os.ReadFile("testdata/ci/" + state + ".yaml")
	if err == nil {
		err = os.MkdirAll(filepath.Join(r.dir, "services"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, "services/shop.yaml"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// attempt runs a script as a runner does.
func (r *ciRepository) attempt(script string, env ...string) (string, error) {
	c := exec.Command("bash", "-e", "-o", "pipefail", "-c", script)
	c.Dir, c.Env = r.dir, slices.Concat(r.env, env)
	out, err := c.CombinedOutput()
	return string(out), err
}

func (r *ciRepository) run(t *testing.T, script string, env ...string) string {
	t.Helper()
	out, err := r.attempt(script, env...)
	if err != nil {
		t.Fatalf("%v in\n%s\n%s", err, script, out)
	}
	return out
}

func (r *ciRepository) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestCIPage runs the commands of the page, and fills in the files and the sample.
func TestCIPage(t *testing.T) {
	page, r := readText(t, ciPage), newCIRepository(t)
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(page, -1)
	if len(blocks) < 5 {
		t.Fatalf("%d blocks of commands", len(blocks))
	}
	for _, b := range blocks {
		r.run(t, strings.ReplaceAll(b[1], "/tmp/base", filepath.Join(t.TempDir(), "base")))
	}
	if plan := r.read(t, "plan.json"); !strings.Contains(plan, `"service": "shop/cart"`) {
		t.Errorf("plan.json: %s", plan)
	}
	fill := func(name, content string) {
		part := regexp.MustCompile(`(?s)(<!-- begin ` + regexp.QuoteMeta(name) + ` -->\n).*?(<!-- end -->)`)
		if !part.MatchString(page) {
			t.Errorf("no part %s", name)
		}
		page = part.ReplaceAllStringFunc(page, func(string) string {
			return "<!-- begin " + name + " -->\n\n" + content + "\n<!-- end -->"
		})
	}
	for _, name := range []string{"ci/github.yaml", "ci/gitlab.yaml"} {
		fill(name, "```yaml\n"+readText(t, "../../docs/"+name)+"```\n")
	}
	sample := r.run(t, "git show origin/main:services/shop.yaml | nftproxy diff --from - -f services/shop.yaml --hostname-override lb-1 -o markdown || [ $? = 1 ]")
	text := r.run(t, "git show origin/main:services/shop.yaml | nftproxy diff --from - -f services/shop.yaml --hostname-override lb-1 --elements=never || [ $? = 1 ]")
	fill("plan", "```\n"+text+"```\n")
	fill("sample", strings.Replace(sample, "### ", "**", 1))
	page = regexp.MustCompile(`(?m)^\*\*(nftproxy: .*)$`).ReplaceAllString(page, "**$1**")
	if want := readText(t, ciPage); want != page {
		if *update {
			if err := os.WriteFile(ciPage, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		t.Errorf("run go test ./cmd/nftproxy -run TestCIPage -update (-page +commands):\n%s", cmp.Diff(want, page))
	}
}

// TestCIGitHub runs the steps of the workflow: with changes, again for a comment that
// is there, without changes, and with invalid input.
func TestCIGitHub(t *testing.T) {
	var workflow struct {
		Env  map[string]string
		Jobs map[string]struct {
			Steps []struct {
				Uses, Name, Run string
				Env             map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readText(t, "../../docs/ci/github.yaml")), &workflow); err != nil {
		t.Fatal(err)
	}
	r := newCIRepository(t)
	r.program(t, "go", `[ "$1 $2" = "install github.com/nftproxy/nftproxy/cmd/nftproxy@$NFTPROXY_VERSION" ] && [ -n "$NFTPROXY_VERSION" ]`)
	r.program(t, "gh", `echo "gh $*" >> calls; case "$*" in *--paginate*) cat id;; esac`)
	context := strings.NewReplacer("${{ github.base_ref }}", "main", "${{ github.token }}", "secret", "${{ github.event.number }}", "7")
	printed := ""
	// steps runs the job and returns the name of the step that failed.
	steps := func() string {
		env := []string{"RUNNER_TEMP=" + t.TempDir(), "GITHUB_STEP_SUMMARY=" + filepath.Join(r.dir, "summary"), "GITHUB_REPOSITORY=shop/services"}
		for key, value := range workflow.Env {
			env = append(env, key+"="+value)
		}
		for _, step := range workflow.Jobs["plan"].Steps {
			own := env
			for key, value := range step.Env {
				own = append(slices.Clip(own), key+"="+context.Replace(value))
			}
			if strings.Contains(step.Run+strings.Join(own, ""), "${{") {
				t.Fatalf("an expression without a value in %q", step.Name)
			}
			out, err := r.attempt(step.Run, own...)
			printed += out
			if err != nil {
				fmt.Fprintf(t.Output(), "%s: %v\n%s\n", step.Name, err, out)
				return step.Name
			}
		}
		return ""
	}
	r.run(t, ": > id")
	if failed := steps(); failed != "" || !strings.Contains(r.read(t, "calls"), "gh pr comment 7 --body-file comment.md\n") {
		t.Errorf("step %q failed; %s", failed, r.read(t, "calls"))
	}
	if comment := r.read(t, "comment.md"); !strings.HasPrefix(comment, "<!-- nftproxy plan -->\n### nftproxy: 2 Services changed\n") ||
		"<!-- nftproxy plan -->\n"+r.read(t, "summary") != comment {
		t.Errorf("the comment, and the summary %q:\n%s", r.read(t, "summary"), comment)
	}
	r.run(t, "echo 12345 > id; rm calls")
	if failed := steps(); failed != "" || !strings.Contains(r.read(t, "calls"), "--method PATCH repos/shop/services/issues/comments/12345 --field body=@comment.md\n") ||
		strings.Contains(r.read(t, "calls"), "pr comment") {
		t.Errorf("step %q failed; %s", failed, r.read(t, "calls"))
	}
	r.input(t, "before")
	if failed := steps(); failed != "" || !strings.Contains(r.read(t, "comment.md"), "no changes") {
		t.Errorf("without changes: step %q failed; %s", failed, r.read(t, "comment.md"))
	}
	for edit, want := range map[string]string{
		"sed -i 's/port: 8080/port: 80800/' services/shop.yaml":                     "::error file=services/shop.yaml,line=",
		"sed -i 's/name: http, port: 8080/name: x, port: 8080/' services/shop.yaml": "Service shop/cart: ",
	} {
		r.input(t, "before")
		r.run(t, edit)
		printed = ""
		if failed := steps(); failed != "check the input" || !strings.Contains(printed, want) {
			t.Errorf("%s: step %q failed: %s", edit, failed, printed)
		}
	}
}

// TestCIGitLab runs the script of the job.
func TestCIGitLab(t *testing.T) {
	var jobs map[string]struct {
		Variables    map[string]string
		BeforeScript []string `yaml:"before_script"`
		Script       []string
	}
	if err := yaml.Unmarshal([]byte(readText(t, "../../docs/ci/gitlab.yaml")), &jobs); err != nil {
		t.Fatal(err)
	}
	r, job := newCIRepository(t), jobs["plan"]
	r.program(t, "go", `[ "$1 $2" = "install github.com/nftproxy/nftproxy/cmd/nftproxy@$NFTPROXY_VERSION" ] && [ -n "$NFTPROXY_VERSION" ]`)
	r.program(t, "curl", `echo "$*" > calls`)
	run := func() error {
		// One shell runs all lines of a job.
		script := strings.Join(append(job.BeforeScript, job.Script...), "\n")
		temp := t.TempDir()
		env := []string{"PLAN_TOKEN=secret", "CI_API_V4_URL=https://gitlab.example.org/api/v4", "CI_PROJECT_ID=3", "CI_MERGE_REQUEST_IID=7",
			"CI_MERGE_REQUEST_DIFF_BASE_SHA=" + strings.TrimSpace(r.run(t, "git rev-parse origin/main"))}
		for key, value := range job.Variables {
			env = append(env, key+"="+value)
		}
		out, err := r.attempt(strings.ReplaceAll(script, "/tmp", temp), env...)
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if calls := r.read(t, "calls"); !strings.Contains(calls, "--data-urlencode body@plan.md https://gitlab.example.org/api/v4/projects/3/merge_requests/7/notes") ||
		!strings.Contains(r.read(t, "plan.md"), "2 Services changed") {
		t.Errorf("%s\n%s", calls, r.read(t, "plan.md"))
	}
	r.run(t, "echo 'kind: [' >> services/shop.yaml")
	if err := run(); err == nil || errors.Is(err, exec.ErrNotFound) {
		t.Errorf("invalid input: %v", err)
	}
}

// ciCommand matches a command line of a workflow. The flags about the node are in a variable.
var ciCommand = regexp.MustCompile(`(?m)\bnftproxy ((?:validate|render|diff|apply|explain|describe|status|new|check)\b[^>|\n]*)`)

// TestCIVersion: the program has the commands and flags of the workflows, and so does the
// version that they install: it is main, or the changelog has them in its section or below.
func TestCIVersion(t *testing.T) {
	changes := readText(t, "../../CHANGELOG.md")
	for _, name := range []string{"github", "gitlab"} {
		text := readText(t, "../../docs/ci/"+name+".yaml")
		found := ciCommand.FindAllStringSubmatch(text, -1)
		flags := regexp.MustCompile(`(?m)^ +FLAGS: (.*)$`).FindStringSubmatch(text)
		version := regexp.MustCompile(`(?m)^ +NFTPROXY_VERSION: (\S+)`).FindStringSubmatch(text)
		if len(found) < 2 || flags == nil || version == nil {
			t.Fatalf("%s.yaml: commands %q, flags %q, version %q", name, found, flags, version)
		}
		var used []string
		for _, c := range found {
			if err := parses(commandRoot(), strings.ReplaceAll(c[1], "$FLAGS", flags[1])); err != nil {
				t.Errorf("%s.yaml: %s: %v", name, c[0], err)
			}
			used = append(used, commandWords(c[1])...)
		}
		if missing := notIn(changes, version[1], used); len(missing) > 0 {
			t.Errorf("%s.yaml installs %s, and the changelog does not say that it has %q", name, version[1], missing)
		}
	}
	for _, c := range []struct {
		version, want string
	}{{"main", ""}, {"v0.1.0", "validate --strict --from"}, {"v9.9.9", "validate diff --strict --from"}} {
		if missing := notIn(changes, c.version, []string{"validate", "diff", "--strict", "--from"}); strings.Join(missing, " ") != c.want {
			t.Errorf("%s lacks %q, want %q", c.version, missing, c.want)
		}
	}
}

// commandWords returns the command and the long flags of a command line, and the format of
// its output.
func commandWords(line string) (out []string) {
	words := strings.Fields(line)
	for i, w := range words {
		if i == 0 || strings.HasPrefix(w, "--") || words[i-1] == "-o" {
			out = append(out, w)
		}
	}
	return out
}

// notIn returns the words that a changelog mentions neither in the section of a version nor
// below; nothing for main.
func notIn(changes, version string, words []string) (missing []string) {
	if version == "main" {
		return nil
	}
	_, below, _ := strings.Cut(changes, "\n## "+strings.TrimPrefix(version, "v")+" ")
	for _, w := range words {
		if !regexp.MustCompile("`[^`\n]*(^|[ `\"])" + regexp.QuoteMeta(w) + "\\b[^`\n]*`").MatchString(below) {
			missing = append(missing, w)
		}
	}
	return missing
}
