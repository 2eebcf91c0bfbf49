package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	helm "helm.sh/helm/v4/pkg/registry"
)

// push pushes image and chart, and returns a line with the kind and the reference of each. A
// version that the registry has is pushed again only if it is the same.
func push(ctx context.Context, version, dist, registry string) (string, error) {
	image, err := pushImage(ctx, filepath.Join(dist, imageFile), registry+"/nftproxy:"+version)
	if err != nil {
		return "", fmt.Errorf("push the image: %w", err)
	}
	number := strings.TrimPrefix(version, "v")
	chart, err := pushChart(ctx, filepath.Join(dist, "nftproxy-"+number+".tgz"), registry+"/charts/nftproxy:"+number)
	if err != nil {
		return "", fmt.Errorf("push the chart: %w", err)
	}
	return "image " + image + "\nchart " + chart, nil
}

// pushImage pushes the image of an archive, and returns its reference by digest.
func pushImage(ctx context.Context, archive, tag string) (string, error) {
	ref, err := name.ParseReference(tag)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "nftproxy-image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if out, err := exec.CommandContext(ctx, "tar", "-C", dir, "-xf", archive).CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w: %s", archive, err, out)
	}
	index, err := readLayout(dir)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", archive, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	has, err := remote.Head(ref, registryOptions(ctx)...)
	switch {
	case isMissing(err):
		err = remote.WriteIndex(ref, index, registryOptions(ctx)...)
	case err == nil && has.Digest != digest:
		err = fmt.Errorf("%s is %s already, and a release never changes: this is %s", ref, has.Digest, digest)
	}
	return ref.Context().Digest(digest.String()).String(), err
}

// readLayout returns the only image of a layout.
func readLayout(dir string) (v1.ImageIndex, error) {
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("there are %d images", len(manifest.Manifests))
	}
	return all.ImageIndex(manifest.Manifests[0].Digest)
}

func registryOptions(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// isMissing reports whether a registry has answered that it does not have something.
func isMissing(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

// pushChart pushes a chart as "helm push" does, but with the time of the chart, so that its
// digest is always the same. It returns its reference by digest.
func pushChart(ctx context.Context, archive, tag string) (string, error) {
	ref, err := name.ParseReference(tag)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(archive)
	if err != nil {
		return "", err
	}
	c, err := loader.Load(archive)
	if err != nil {
		return "", err
	}
	if digest, err := pushedChart(ctx, ref, data); digest != "" || err != nil {
		return ref.Context().Digest(digest).String(), err
	}
	options := []helm.ClientOption{helm.ClientOptWriter(io.Discard)}
	if isLocal(ref.Context().RegistryStr()) {
		options = append(options, helm.ClientOptPlainHTTP())
	}
	client, err := helm.NewClient(options...)
	if err != nil {
		return "", err
	}
	result, err := client.Push(data, tag, helm.PushOptCreationTime(c.ModTime.UTC().Format(time.RFC3339)))
	if err != nil {
		return "", err
	}
	return ref.Context().Digest(result.Manifest.Digest).String(), nil
}

// pushedChart returns the digest of a chart that a registry has already, or nothing. It is an
// error if the registry has another one.
func pushedChart(ctx context.Context, ref name.Reference, data []byte) (string, error) {
	image, err := remote.Image(ref, registryOptions(ctx)...)
	if isMissing(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", ref, err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		return "", fmt.Errorf("%s has %d layers, %v", ref, len(layers), err)
	}
	has, err := layers[0].Digest()
	if err != nil {
		return "", err
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(data)); has.Hex != want {
		return "", fmt.Errorf("%s is a chart %s already, and a release never changes: this is %s", ref, has.Hex, want)
	}
	digest, err := image.Digest()
	return digest.String(), err
}

// isLocal reports whether a registry is on this machine, where it needs no TLS.
func isLocal(registry string) bool {
	host, _, err := net.SplitHostPort(registry)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}
