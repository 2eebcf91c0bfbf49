package kubelets

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// registries are those of test/utils/image in the source of Kubernetes.
var registries = map[string]string{
	"PromoterE2eRegistry": "registry.k8s.io/e2e-test-images/",
	"GcRegistry":          "registry.k8s.io/",
	"BuildImageRegistry":  "registry.k8s.io/build-image/",
}

var testImage = regexp.MustCompile(`(?m)^\tconfigs\[(\w+)\] = Config\{list\.(\w+), "([^"]+)", "([^"]+)"\}$`)

// testImages returns the references by which the tests of Kubernetes ask for images, by
// names such as "Agnhost". manifest is test/utils/image/manifest.go of the release.
func testImages(manifest string) (map[string]string, error) {
	source, err := os.ReadFile(manifest)
	if err != nil {
		return nil, err
	}
	images := map[string]string{}
	for _, m := range testImage.FindAllStringSubmatch(string(source), -1) {
		if registry, known := registries[m[2]]; known {
			images[m[1]] = registry + m[3] + ":" + m[4]
		}
	}
	for _, name := range []string{"Agnhost", "AgnhostPrev", "BusyBox", "DistrolessIptables", "GlibcDnsTesting", "Nginx", "Pause", "RegressionIssue74839"} {
		if images[name] == "" {
			return nil, fmt.Errorf("%s has no image %s", manifest, name)
		}
	}
	if images["Pause"] != pauseImage {
		return nil, fmt.Errorf("the tests ask for %s: set pauseImage", images["Pause"])
	}
	return images, nil
}

// registry returns the image in the layout that agnhost's fake registry serves from
// /var/registry: blobs and manifests by digest, and a file for the tag.
func (i image) registry(name, tag string) ([]file, error) {
	img, err := i.build()
	if err != nil {
		return nil, err
	}
	raw, err := img.RawManifest()
	if err != nil {
		return nil, err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	dir := path.Join("var/registry", name)
	at := func(kind string, h v1.Hash) string {
		return path.Join(dir, kind, h.Algorithm, h.Hex[:2], h.Hex, "data")
	}
	files := []file{
		{path: path.Join(dir, "manifests", tag), mode: 0o644, text: digest.String()},
		{path: at("manifests", digest), mode: 0o644, text: string(raw)},
		{path: at("blobs", manifest.Config.Digest), mode: 0o644, text: string(config)},
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for i, l := range layers {
		content, err := l.Compressed()
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(content)
		if err := errors.Join(err, content.Close()); err != nil {
			return nil, err
		}
		files = append(files, file{path: at("blobs", manifest.Layers[i].Digest), mode: 0o644, text: string(text)})
	}
	return files, nil
}
