// Package tree knows what figures on pages have to be of: the rules and the Kubernetes of this
// source tree.
package tree

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/nftproxy/nftproxy/bench/layout"
	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source/files"
)

// Layout returns the layout of the rules that this source writes.
func Layout() (string, error) {
	in, err := (&files.Reader{Paths: []string{"-"}, Stdin: strings.NewReader(layout.Objects)}).Load()
	if err != nil {
		return "", fmt.Errorf("read the objects of the layout: %w", err)
	}
	config := model.Config{NodeName: layout.Node}
	for cidr := range strings.SplitSeq(layout.ClusterCIDRs, ",") {
		config.ClusterCIDRs = append(config.ClusterCIDRs, netip.MustParsePrefix(cidr))
	}
	var rules bytes.Buffer
	if err := render.Render(model.Resolve(in.Snapshot, config)).Text(&rules); err != nil {
		return "", fmt.Errorf("print the rules of the layout: %w", err)
	}
	return layout.Digest(rules.Bytes()), nil
}

// Of returns the layout, and the version of Kubernetes that the tree below root pins for all
// comparisons.
func Of(root string) (report.Tree, error) {
	rules, err := Layout()
	if err != nil {
		return report.Tree{}, err
	}
	file := filepath.Join(root, "e2e", "tools", "go.mod")
	text, err := exec.Command("go", "mod", "edit", "-json", file).Output()
	if err != nil {
		return report.Tree{}, fmt.Errorf("read %s: %w", file, err)
	}
	var module struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(text, &module); err != nil {
		return report.Tree{}, fmt.Errorf("read %s: %w", file, err)
	}
	for _, r := range module.Require {
		if r.Path == "k8s.io/kubernetes" {
			return report.Tree{Layout: rules, Kubernetes: strings.TrimPrefix(r.Version, "v")}, nil
		}
	}
	return report.Tree{}, fmt.Errorf("%s does not require k8s.io/kubernetes", file)
}
