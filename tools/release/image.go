package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	programPrefix = "nftproxy-linux-" // and the architecture
	imageFile     = "nftproxy-image.tar"
	entrypoint    = "/usr/local/bin/nftproxy"
)

// writeImage writes the image as an OCI layout into a directory, and returns its digest.
func writeImage(b build, dir string) (string, error) {
	programs, err := filepath.Glob(filepath.Join(b.dist, programPrefix+"*"))
	if err != nil {
		return "", err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var labels map[string]string
	for _, path := range programs {
		arch := strings.TrimPrefix(filepath.Base(path), programPrefix)
		if strings.Contains(arch, ".") {
			continue // the bill of materials of a program
		}
		labels, err = imageLabels(b, path)
		if err != nil {
			return "", err
		}
		image, err := platformImage(b, path, arch, labels)
		if err != nil {
			return "", fmt.Errorf("make the image of %s: %w", path, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	if labels == nil {
		return "", fmt.Errorf("no programs %s* in %s", programPrefix, b.dist)
	}
	index = mutate.Annotations(index, labels).(v1.ImageIndex)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": b.version})); err != nil {
		return "", fmt.Errorf("write the layout of the image: %w", err)
	}
	digest, err := index.Digest()
	return digest.String(), err
}

// imageLabels returns the labels of the image, those of deploy/Dockerfile among them.
func imageLabels(b build, program string) (map[string]string, error) {
	commit, _, err := revision(program)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{"created": b.created.Format(time.RFC3339), "revision": commit, "version": b.version,
		"title": "nftproxy", "description": "A Kubernetes service proxy built on nftables that replaces kube-proxy",
		"source": repository, "licenses": "Apache-2.0"}
	out := make(map[string]string)
	for name, value := range labels {
		out["org.opencontainers.image."+name] = value
	}
	return out, nil
}

// revision returns the commit and the version of Go that the toolchain has noted in a program.
func revision(program string) (commit, goVersion string, err error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", "", fmt.Errorf("read the build of %s: %w", program, err)
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value, strings.TrimPrefix(info.GoVersion, "go"), nil
		}
	}
	return "", "", fmt.Errorf("%s names no commit: build it with -buildvcs=true", program)
}

// platformImage returns the image of one architecture: the layer of deploy/Dockerfile.
func platformImage(b build, program, arch string, labels map[string]string) (v1.Image, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	files, err := layerTar(content, b.created)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(9))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: b.created}, CreatedBy: "make release", Comment: labels["org.opencontainers.image.revision"]}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: b.created}
	config.Config = v1.Config{Entrypoint: []string{entrypoint}, Labels: labels,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	return mutate.ConfigFile(image, config)
}

// layerTar returns the files of the image: the program, and its name in kube-proxy's DaemonSet.
func layerTar(program []byte, created time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	var errs []error
	add := func(h tar.Header, content []byte) {
		h.ModTime, h.Mode, h.Size, h.Format = created, 0o755, int64(len(content)), tar.FormatUSTAR
		errs = append(errs, w.WriteHeader(&h))
		_, err := w.Write(content)
		errs = append(errs, err)
	}
	for _, dir := range []string{"usr/", "usr/local/", "usr/local/bin/"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir}, nil)
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: entrypoint[1:]}, program)
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/local/bin/kube-proxy", Linkname: "nftproxy"}, nil)
	return out.Bytes(), errors.Join(append(errs, w.Close())...)
}
