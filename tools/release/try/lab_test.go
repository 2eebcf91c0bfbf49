package try

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

var distFlag = flag.String("dist", "", "directory that scripts/release has filled")

// top is the repository, seen from this directory.
const top = "../../.."

// lab is a published release: a registry with its image and chart, and its files.
type lab struct {
	*testing.T
	address string // of the registry
	dist    string // a copy of the files, with the signatures
	work    string // keys
	version string // v1.2.3
	env     []string
}

// publish publishes the release with a new key.
func publish(t *testing.T) *lab {
	t.Helper()
	if *distFlag == "" {
		t.Fatal(`which files are tried? See "make release-try".`)
	}
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	work := t.TempDir()
	l := &lab{T: t, address: strings.TrimPrefix(server.URL, "http://"), dist: filepath.Join(work, "dist"), work: work}
	l.version = "v" + strings.TrimSpace(l.read(filepath.Join(top, "VERSION")))
	// No key has a password, no configuration of the user is used, and no key of a public service is fetched.
	l.env = append(os.Environ(), "COSIGN_PASSWORD=", "CGO_ENABLED=0", "DOCKER_CONFIG="+work, "HELM_REGISTRY_CONFIG="+work+"/helm.json")
	l.must(top+"/scripts/try-signer", work, "release", "stranger")
	l.must("cp", "-r", *distFlag, l.dist)
	l.must(top+"/scripts/publish", append([]string{l.dist, l.address}, l.signer("release")...)...)
	return l
}

// signer returns the arguments by which cosign signs with a key.
func (l *lab) signer(key string) []string {
	return []string{"--key=" + l.work + "/" + key + ".key", "--signing-config=" + l.work + "/none.json", "--trusted-root=" + l.work + "/root.json"}
}

// trust returns the arguments by which cosign verifies with a key.
func (l *lab) trust(key string) []string {
	return []string{"--key=" + l.work + "/" + key + ".pub", "--insecure-ignore-tlog", "--trusted-root=" + l.work + "/root.json"}
}

// image returns the reference of the published image by its tag.
func (l *lab) image() string { return l.address + "/nftproxy:" + l.version }

// deb returns the path of the package of an architecture.
func (l *lab) deb(arch string) string {
	return l.dist + "/nftproxy_" + strings.TrimPrefix(l.version, "v") + "-1_" + arch + ".deb"
}

// cosign runs a command of cosign that verifies something with a key.
func (l *lab) cosign(command, key string, args ...string) (string, error) {
	return l.run(l.work+"/cosign", append(append([]string{command}, l.trust(key)...), args...)...)
}

// run runs a command and returns what it prints, also to its standard error.
func (l *lab) run(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(l.Context(), name, args...)
	cmd.Env = l.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs a command that has to succeed, and returns its output.
func (l *lab) must(name string, args ...string) string {
	l.Helper()
	cmd := exec.CommandContext(l.Context(), name, args...)
	cmd.Env = l.env
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		l.Fatalf("%s: %v\n%s%s", cmd, err, out, complaint.String())
	}
	return string(out)
}

// refused checks that a command has failed, for a reason.
func (l *lab) refused(what, reason, out string, err error) {
	l.Helper()
	if err == nil || !strings.Contains(out, reason) {
		l.Errorf("%s: %v, want an error with %q:\n%s", what, err, reason, out)
	}
}

func (l *lab) read(path string) string {
	l.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		l.Fatal(err)
	}
	return string(content)
}

// write writes a file of the work directory and returns its path.
func (l *lab) write(name, content string) string {
	l.Helper()
	path := filepath.Join(l.work, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		l.Fatal(err)
	}
	return path
}

func (l *lab) reference(text string) name.Reference {
	l.Helper()
	ref, err := name.ParseReference(text)
	if err != nil {
		l.Fatal(err)
	}
	return ref
}

// index returns an image of several platforms from the registry.
func (l *lab) index(text string) v1.ImageIndex {
	l.Helper()
	index, err := remote.Index(l.reference(text))
	if err != nil {
		l.Fatal(err)
	}
	return index
}

// platform returns the image of an architecture.
func (l *lab) platform(arch string) v1.Image {
	l.Helper()
	image, err := remote.Image(l.reference(l.image()), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	if err != nil {
		l.Fatal(err)
	}
	return image
}

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}
