package try

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
)

// TestRelease publishes the release and uses it.
func TestRelease(t *testing.T) {
	l := publish(t)
	on := func(name string, f func(*lab)) {
		t.Run(name, func(t *testing.T) {
			part := *l
			part.T = t
			f(&part)
		})
	}
	on("the commands of the page", verifyByPage)
	on("another library", verifyByLibrary)
	on("the images run", runImages)
	on("the package is installed", installPackage)
	// These change the release.
	on("another key", refuseOtherKey)
	on("a changed image", refuseChangedImage)
	on("a moved signature", refuseMovedSignature)
	on("no provenance", refuseMissingProvenance)
	on("changed files", refuseChangedFiles)
}

// verifyByPage runs the commands of docs/verify.md.
func verifyByPage(l *lab) {
	l.env = append(l.env, "REGISTRY="+l.address, "SIGNER="+strings.Join(l.trust("release"), " "))
	out, err := l.run(top+"/scripts/verify", l.dist)
	if err != nil {
		l.Fatalf("%v\n%s", err, out)
	}
	commit := strings.TrimSpace(l.must("git", "rev-parse", "HEAD"))
	if !strings.Contains(out, "\n"+commit+"\n") {
		l.Errorf("the provenance does not name commit %s:\n%s", commit, out)
	}
}

// verifyByLibrary reads the provenance of image and files with a library that is not cosign's.
func verifyByLibrary(l *lab) {
	ref := l.reference(l.image()).Context()
	digest, err := l.index(l.image()).Digest()
	if err != nil {
		l.Fatal(err)
	}
	referrers, err := remote.Referrers(ref.Digest(digest.String()))
	if err != nil {
		l.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		l.Fatal(err)
	}
	found := make(map[string]int)
	for _, m := range manifest.Manifests {
		image, err := remote.Image(ref.Digest(m.Digest.String()))
		if err != nil {
			l.Fatal(err)
		}
		s := l.statement(firstLayer(l, image), "release")
		found[s.PredicateType]++
		if len(s.Subject) != 1 || s.Subject[0].Digest["sha256"] != digest.Hex {
			l.Errorf("%s is about %v, not about %s", s.PredicateType, s.Subject, digest)
		}
	}
	if found["https://slsa.dev/provenance/v1"] != 1 || found["https://cyclonedx.org/bom"] != 2 || found["https://sigstore.dev/cosign/sign/v1"] != 1 {
		l.Errorf("the image has the attestations %v", found)
	}
	s := l.statement(l.read(l.dist+"/provenance.sigstore.json"), "release")
	if want := strings.Count(l.read(l.dist+"/SHA256SUMS"), "\n"); len(s.Subject) != want || s.Type != "https://in-toto.io/Statement/v1" {
		l.Errorf("a statement %s about %d files, want %d", s.Type, len(s.Subject), want)
	}
	for _, subject := range s.Subject {
		if got := sum(l.read(filepath.Join(l.dist, subject.Name))); got != subject.Digest["sha256"] {
			l.Errorf("%s has the checksum %s, in the provenance %s", subject.Name, got, subject.Digest["sha256"])
		}
	}
}

type statement struct {
	Type          string `json:"_type"`
	PredicateType string
	Subject       []struct {
		Name   string
		Digest map[string]string
	}
}

// statement verifies what a bundle holds, by a key, and returns it.
func (l *lab) statement(bundle, key string) statement {
	l.Helper()
	public, err := signerverifier.LoadKey([]byte(l.read(l.work + "/" + key + ".pub")))
	if err != nil {
		l.Fatal(err)
	}
	one, err := signerverifier.NewECDSASignerVerifierFromSSLibKey(public)
	if err != nil {
		l.Fatal(err)
	}
	verifier, err := dsse.NewEnvelopeVerifier(one)
	if err != nil {
		l.Fatal(err)
	}
	var b struct{ DsseEnvelope dsse.Envelope }
	if err := json.Unmarshal([]byte(bundle), &b); err != nil {
		l.Fatal(err)
	}
	_, payload, err := verifier.VerifyAndDecode(context.Background(), &b.DsseEnvelope)
	if err != nil {
		l.Fatalf("verify the envelope: %v", err)
	}
	var s statement
	if err := json.Unmarshal(payload, &s); err != nil {
		l.Fatal(err)
	}
	return s
}

func firstLayer(l *lab, image v1.Image) string {
	l.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		l.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Compressed()
	if err != nil {
		l.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		l.Fatal(err)
	}
	return string(content)
}

// runImages runs the programs of the image of each architecture, in a file system that has
// nothing else.
func runImages(l *lab) {
	for arch, emulator := range map[string]string{"amd64": "", "arm64": "qemu-aarch64-static"} {
		root := l.TempDir()
		unpack(l, l.platform(arch), root)
		args := []string{"chroot", root}
		if emulator != "" && arch != runtime.GOARCH {
			l.must("cp", strings.TrimSpace(l.must("sh", "-c", "command -v "+emulator)), root)
			args = append(args, "/"+emulator)
		}
		out := l.must(args[0], append(args[1:], "/usr/local/bin/nftproxy", "version")...)
		if want := "nftproxy " + l.version + " (" + "go"; !strings.HasPrefix(out, want) || !strings.HasSuffix(out, ", linux/"+arch+")\n") {
			l.Errorf("%s: the image prints %q", arch, out)
		}
		out = l.must(args[0], append(args[1:], "/usr/local/bin/kube-proxy", "--version")...)
		if !strings.HasPrefix(out, "nftproxy "+l.version+" ") {
			l.Errorf("%s: under the name kube-proxy, the image prints %q", arch, out)
		}
	}
}

// unpack writes the files of an image to a directory.
func unpack(l *lab, image v1.Image, root string) {
	l.Helper()
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			l.Fatal(err)
		}
		path := filepath.Join(root, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, path)
		default:
			var content []byte
			content, err = io.ReadAll(r)
			err = errors.Join(err, os.WriteFile(path, content, 0o755))
		}
		if err != nil {
			l.Fatal(err)
		}
	}
}

// installPackage installs the package on a copy of this Debian, uses it, and removes it.
func installPackage(l *lab) {
	out := l.must("unshare", "--mount", "--net", "sh", "-exc", `
		mount -t tmpfs none "$1" && cd "$1" && mkdir upper work root
		mount -t overlay none -o lowerdir=/,upperdir=upper,workdir=work root
		mkdir -p root/tmp && mount -t tmpfs none root/tmp && cp "$2" root/tmp/nftproxy.deb
		chroot root sh -exc '
			dpkg --no-triggers --install /tmp/nftproxy.deb
			dpkg --verify nftproxy
			nftproxy version
			nftproxy render -f /usr/share/doc/nftproxy/examples/web.yaml | grep 203.0.113
			dpkg --no-triggers --purge nftproxy
			test ! -e /usr/bin/nftproxy
		'`, "install", l.TempDir(), l.deb(runtime.GOARCH))
	for _, want := range []string{"\nnftproxy " + l.version + " (", "203.0.113."} {
		if !strings.Contains(out, want) {
			l.Errorf("no %q in\n%s", want, out)
		}
	}
}
