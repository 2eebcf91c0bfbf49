package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
)

// chartSource is the chart in the repository, seen from this directory.
const chartSource = "../../deploy/helm/nftproxy"

// imageValues are the lines of values.yaml that a release replaces.
var imageValues = []struct{ line, with string }{
	{"\n  repository: nftproxy\n", "\n  repository: " + publicRegistry + "/nftproxy\n"},
	{"\n  tag: latest\n", "\n  tag: %[1]s\n"},
	{"\n  digest: \"\"\n", "\n  digest: %[2]s\n"},
}

// writeChart writes the chart of a release, whose image is the one of a digest, and returns
// the path of the archive.
func writeChart(b build, digest string) (string, error) {
	c, err := loader.Load(chartSource)
	if err != nil {
		return "", fmt.Errorf("load the chart: %w", err)
	}
	if c.Metadata.Version != b.number() || c.Metadata.AppVersion != b.number() {
		return "", fmt.Errorf("the chart has version %s and appVersion %s, and the release is %s: see VERSION",
			c.Metadata.Version, c.Metadata.AppVersion, b.version)
	}
	c.ModTime, c.SchemaModTime = b.created, b.created
	for _, files := range [][]*common.File{c.Raw, c.Templates, c.Files} {
		for _, f := range files {
			f.ModTime = b.created
		}
	}
	if err := setImage(c, b.version, digest); err != nil {
		return "", err
	}
	path, err := util.Save(c, b.dist)
	if err != nil {
		return "", fmt.Errorf("write the chart: %w", err)
	}
	return path, os.Chmod(path, 0o644)
}

// setImage makes an image the default of a chart.
func setImage(c *chart.Chart, version, digest string) error {
	for _, f := range c.Raw {
		if f.Name != util.ValuesfileName {
			continue
		}
		for _, v := range imageValues {
			if n := bytes.Count(f.Data, []byte(v.line)); n != 1 {
				return fmt.Errorf("%s has %d lines %q", f.Name, n, v.line)
			}
			f.Data = bytes.Replace(f.Data, []byte(v.line), fmt.Appendf(nil, v.with+"%[3]s", version, digest, ""), 1)
		}
		return nil
	}
	return fmt.Errorf("%s is missing in %s", util.ValuesfileName, filepath.Base(chartSource))
}
