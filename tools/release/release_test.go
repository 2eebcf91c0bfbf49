package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

var someTime = time.Unix(1_700_000_000, 0).UTC()

// newBuild returns a build of small programs for both architectures, with the commit
// that they name.
func newBuild(t *testing.T) (build, string) {
	t.Helper()
	source := t.TempDir()
	write(t, filepath.Join(source, "go.mod"), "module example.com/small\n\ngo 1.26\n")
	write(t, filepath.Join(source, "main.go"), "package main\n\nfunc main() { println(\"small\") }\n")
	command(t, source, nil, "git", "init", "-q")
	command(t, source, nil, "git", "add", ".")
	command(t, source, nil, "git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "small")
	b := build{version: version(t), dist: t.TempDir(), created: someTime}
	for _, arch := range []string{"amd64", "arm64"} {
		env := []string{"GOARCH=" + arch, "GOFLAGS=", "CGO_ENABLED=0"}
		command(t, source, env, "go", "build", "-buildvcs=true", "-trimpath", "-o", filepath.Join(b.dist, programPrefix+arch), ".")
		write(t, filepath.Join(b.dist, programPrefix+arch+".cdx.json"), "{}")
	}
	return b, strings.TrimSpace(command(t, source, nil, "git", "rev-parse", "HEAD"))
}

func version(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	return "v" + strings.TrimSpace(string(text))
}

func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = exit.Stderr
		}
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestImage makes the image twice, and compares it with what deploy/Dockerfile makes.
func TestImage(t *testing.T) {
	b, commit := newBuild(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	var digests []string
	for _, dir := range dirs {
		digest, err := writeImage(b, dir)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("two images of the same programs: %s", digests)
	}
	index, err := readLayout(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, image, m.Platform.Architecture, commit, b)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %v, want %v", platforms, want)
	}
}

func checkImage(t *testing.T, image v1.Image, arch, commit string, b build) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != arch || config.OS != "linux" || !config.Created.Equal(someTime) {
		t.Errorf("%s: is for %s/%s, of %s", arch, config.OS, config.Architecture, config.Created)
	}
	for label, want := range dockerLabels(t, b.version) {
		if got := config.Config.Labels[label]; got != want {
			t.Errorf("%s: %s is %q, in the Dockerfile %q", arch, label, got, want)
		}
	}
	if got := config.Config.Labels["org.opencontainers.image.revision"]; got != commit {
		t.Errorf("%s: is of commit %q, want %s", arch, got, commit)
	}
	if got := strings.Join(config.Config.Entrypoint, " "); got != entrypoint {
		t.Errorf("%s: entry point %q", arch, got)
	}
	program, err := os.ReadFile(filepath.Join(b.dist, programPrefix+arch))
	if err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(image)
	defer files.Close()
	found := make(map[string]string)
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		content, readErr := io.ReadAll(r)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeDir {
			found["/"+h.Name] = h.Linkname + string(content)
		}
	}
	if len(found) != 2 || found[entrypoint] != string(program) || found["/usr/local/bin/kube-proxy"] != "nftproxy" {
		t.Errorf("%s: the image does not have exactly the program and the link", arch)
	}
}

// dockerLabels returns the labels of deploy/Dockerfile.
func dockerLabels(t *testing.T, version string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, m := range regexp.MustCompile(`(org\.opencontainers\.image\.\w+)="([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = strings.ReplaceAll(m[2], "$VERSION", version)
	}
	if len(out) < 5 {
		t.Fatalf("the Dockerfile has the labels %v", out)
	}
	if !strings.Contains(string(text), "\nENTRYPOINT [\""+entrypoint+"\"]\n") {
		t.Errorf("the Dockerfile has another entry point than %s", entrypoint)
	}
	return out
}

// TestChart makes the chart twice: it names the image by its digest.
func TestChart(t *testing.T) {
	var archives []string
	for range 2 {
		path, err := writeChart(build{version: version(t), dist: t.TempDir(), created: someTime}, someDigest)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, string(content))
		values := command(t, ".", nil, "tar", "-xOf", path, "nftproxy/values.yaml")
		for _, want := range []string{"  repository: ghcr.io/nftproxy/nftproxy\n", "  tag: " + version(t) + "\n", "  digest: " + someDigest + "\n"} {
			if !strings.Contains(values, want) {
				t.Errorf("the values have no %q", want)
			}
		}
	}
	if archives[0] != archives[1] {
		t.Error("two charts of the same source differ")
	}
	_, err := writeChart(build{version: "v9.9.9", dist: t.TempDir(), created: someTime}, someDigest)
	if err == nil || !strings.Contains(err.Error(), "see VERSION") {
		t.Errorf("a chart of another version: %v", err)
	}
}

// TestPush: pushing a release again changes nothing, and another one of the same
// version is refused.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	b, _ := newBuild(t)
	pushBuild := func() (string, error) {
		dir := t.TempDir()
		digest, err := writeImage(b, dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := writeChart(b, digest); err != nil {
			t.Fatal(err)
		}
		command(t, dir, nil, "tar", "-cf", filepath.Join(b.dist, imageFile), "oci-layout", "index.json", "blobs")
		return push(t.Context(), b.version, b.dist, address)
	}
	first, err := pushBuild()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^image \S+/nftproxy@sha256:\w+\nchart \S+/charts/nftproxy@sha256:\w+$`).MatchString(first) {
		t.Errorf("pushed %q", first)
	}
	if again, err := pushBuild(); again != first || err != nil {
		t.Errorf("pushed again %q, %v; before %q", again, err, first)
	}
	b.created = b.created.Add(time.Hour)
	// Another time changes image and chart: the image must be refused before the chart.
	if _, err := pushBuild(); err == nil || !strings.HasPrefix(err.Error(), "push the image: ") || !strings.Contains(err.Error(), "a release never changes") {
		t.Errorf("another image of the same version: %v", err)
	}
	// The same image, and another chart.
	name := "nftproxy-" + b.number() + ".tgz"
	if _, err := pushChart(t.Context(), filepath.Join(b.dist, name), address+"/charts/nftproxy:"+b.number()); err == nil ||
		!strings.Contains(err.Error(), "a release never changes") {
		t.Errorf("another chart of the same version: %v", err)
	}
}

// TestProvenance: the statement has the members that SLSA 1.0 and GitHub's build type ask for.
func TestProvenance(t *testing.T) {
	b, commit := newBuild(t)
	write(t, filepath.Join(b.dist, checksums), strings.TrimPrefix(someDigest, "sha256:")+"  "+programPrefix+"amd64\n")
	workflow := map[string]string{
		"GITHUB_ACTIONS": "true", "GITHUB_SHA": commit, "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "nftproxy/nftproxy",
		"GITHUB_REF": "refs/tags/v1.2.3", "GITHUB_WORKFLOW_REF": "nftproxy/nftproxy/.github/workflows/release.yaml@refs/tags/v1.2.3",
		"GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "1", "GITHUB_EVENT_NAME": "push", "RUNNER_ENVIRONMENT": "github-hosted",
	}
	for name, c := range map[string]struct {
		env  map[string]string
		want []string
	}{
		"in a workflow": {workflow, []string{
			`"id":"https://github.com/nftproxy/nftproxy/.github/workflows/release.yaml@refs/tags/v1.2.3"`,
			`"buildType":"` + workflowBuild + `"`, `"invocationId":"https://github.com/nftproxy/nftproxy/actions/runs/7/attempts/1"`,
			`"workflow":{"path":".github/workflows/release.yaml","ref":"refs/tags/v1.2.3","repository":"https://github.com/nftproxy/nftproxy"}`,
			`"uri":"git+https://github.com/nftproxy/nftproxy@refs/tags/v1.2.3"`, `"gitCommit":"` + commit + `"`,
		}},
		"elsewhere": {nil, []string{`"id":"` + localBuild + `"`, `"gitCommit":"` + commit + `"`, `"uri":"pkg:generic/go@1.`}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := provenance(b.dist, func(name string) string { return c.env[name] })
			if err != nil {
				t.Fatal(err)
			}
			compact := compacted(t, text)
			for _, want := range append(c.want, `"_type":"https://in-toto.io/Statement/v1"`, `"predicateType":"https://slsa.dev/provenance/v1"`,
				`"subject":[{"digest":{"sha256":"`+someDigest[7:]+`"},"name":"nftproxy-linux-amd64"}]`) {
				if !strings.Contains(compact, want) {
					t.Errorf("no %s in\n%s", want, text)
				}
			}
		})
	}
	workflow["GITHUB_SHA"] = strings.Repeat("0", 40)
	if _, err := provenance(b.dist, func(name string) string { return workflow[name] }); err == nil || !strings.Contains(err.Error(), commit) {
		t.Errorf("programs of another commit: %v", err)
	}
}

func compacted(t *testing.T, text string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	compact, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(compact)
}

// TestUsage: a command that is not one is an error.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"image"}, {"chart", "v1.2.3", "dist"}, {"publish", "v1.2.3", "dist", "registry"}} {
		if _, err := run(context.Background(), args, os.Getenv); err == nil || !strings.HasPrefix(err.Error(), "usage: ") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
