package try

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// refuseOtherKey verifies with the key of a stranger.
func refuseOtherKey(l *lab) {
	const reason = "accepted signatures do not match threshold"
	out, err := l.cosign("verify", "stranger", l.image())
	l.refused("the image", reason, out, err)
	out, err = l.cosign("verify-attestation", "stranger", "--type=slsaprovenance1", l.image())
	l.refused("the provenance of the image", reason, out, err)
	out, err = l.cosign("verify-blob", "stranger", "--bundle="+l.dist+"/SHA256SUMS.sigstore.json", l.dist+"/SHA256SUMS")
	l.refused("the checksums", "invalid signature", out, err)
	out, err = l.cosign("verify-blob-attestation", "stranger", "--type=slsaprovenance1", "--bundle="+l.dist+"/provenance.sigstore.json", l.deb("amd64"))
	l.refused("the provenance of the package", reason, out, err)
}

// changedImage returns the image with another label in one platform.
func changedImage(l *lab) v1.ImageIndex {
	l.Helper()
	image, err := mutate.Config(l.platform("amd64"), v1.Config{Entrypoint: []string{"/bin/sh"}})
	if err != nil {
		l.Fatal(err)
	}
	return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image})
}

// refuseChangedImage moves the tag to another image.
func refuseChangedImage(l *lab) {
	ref, original := l.reference(l.image()), l.index(l.image())
	if err := remote.WriteIndex(ref, changedImage(l)); err != nil {
		l.Fatal(err)
	}
	defer func() {
		if err := remote.WriteIndex(ref, original); err != nil {
			l.Error(err)
		}
	}()
	out, err := l.cosign("verify", "release", l.image())
	l.refused("the image", "no signatures found", out, err)
	out, err = l.cosign("verify-attestation", "release", "--type=slsaprovenance1", l.image())
	l.refused("the provenance", "no matching attestations", out, err)
	out, err = l.run(top+"/scripts/publish", append([]string{l.dist, l.address}, l.signer("release")...)...)
	l.refused("a second image of the same version", "a release never changes", out, err)
}

// refuseMovedSignature gives the signatures and attestations of the image to another one.
func refuseMovedSignature(l *lab) {
	repository := l.reference(l.image()).Context()
	changed := changedImage(l)
	tag := repository.Tag("changed")
	if err := remote.WriteIndex(tag, changed); err != nil {
		l.Fatal(err)
	}
	subject, err := partial.Descriptor(changed)
	if err != nil {
		l.Fatal(err)
	}
	digest, err := l.index(l.image()).Digest()
	if err != nil {
		l.Fatal(err)
	}
	referrers, err := remote.Referrers(repository.Digest(digest.String()))
	if err != nil {
		l.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil || len(manifest.Manifests) == 0 {
		l.Fatalf("%d signatures, %v", len(manifest.Manifests), err)
	}
	for _, m := range manifest.Manifests {
		signature, err := remote.Image(repository.Digest(m.Digest.String()))
		if err != nil {
			l.Fatal(err)
		}
		moved := mutate.Subject(signature, *subject).(v1.Image)
		at, err := moved.Digest()
		if err != nil {
			l.Fatal(err)
		}
		if err := remote.Write(repository.Digest(at.String()), moved); err != nil {
			l.Fatal(err)
		}
	}
	const reason = "artifact digest does not match any digest in statement"
	out, err := l.cosign("verify", "release", tag.String())
	l.refused("the image", reason, out, err)
	out, err = l.cosign("verify-attestation", "release", "--type=slsaprovenance1", tag.String())
	l.refused("the provenance", reason, out, err)
}

// refuseMissingProvenance signs a copy of the image, and attests only what is in it.
func refuseMissingProvenance(l *lab) {
	copied := l.address + "/copy:" + l.version
	if err := remote.WriteIndex(l.reference(copied), l.index(l.image())); err != nil {
		l.Fatal(err)
	}
	out, err := l.cosign("verify", "release", copied)
	l.refused("the image without a signature", "no signatures found", out, err)
	l.must(l.work+"/cosign", append([]string{"sign", "--yes", copied}, l.signer("release")...)...)
	if out, err := l.cosign("verify", "release", copied); err != nil {
		l.Errorf("the signed image: %v\n%s", err, out)
	}
	out, err = l.cosign("verify-attestation", "release", "--type=slsaprovenance1", copied)
	l.refused("the image without provenance", "none of the attestations matched the predicate type", out, err)
}

// refuseChangedFiles changes files of the release.
func refuseChangedFiles(l *lab) {
	changed := l.write("changed.deb", l.read(l.deb("amd64"))+" ")
	out, err := l.cosign("verify-blob-attestation", "release", "--type=slsaprovenance1", "--bundle="+l.dist+"/provenance.sigstore.json", changed)
	l.refused("a changed package", "do not match digests in statement", out, err)

	list := l.read(l.dist + "/SHA256SUMS")
	list = l.write("SHA256SUMS", strings.Replace(list, sum(l.read(l.deb("amd64"))), sum(l.read(changed)), 1))
	out, err = l.cosign("verify-blob", "release", "--bundle="+l.dist+"/SHA256SUMS.sigstore.json", list)
	l.refused("changed checksums", "invalid signature", out, err)

	// A bundle with the statement about other files is not signed.
	bundle := l.read(l.dist + "/provenance.sigstore.json")
	i := strings.Index(bundle, `"sig":"`) + len(`"sig":"`)
	bundle = l.write("provenance.sigstore.json", bundle[:i+20]+flip(bundle[i+20])+bundle[i+21:])
	out, err = l.cosign("verify-blob-attestation", "release", "--type=slsaprovenance1", "--bundle="+bundle, l.deb("amd64"))
	l.refused("a changed signature", "signature", out, err)
}

// flip returns another character of base64.
func flip(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}
