// Package tree knows what figures on pages have to be of: the rules and the Kubernetes of this
// source tree.
package tree

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/bench/layout"
	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source/files"
	"github.com/nftproxy/nftproxy/internal/testkit/release"
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

// Of returns the layout, and the version of Kubernetes that all comparisons are of.
func Of() (report.Tree, error) {
	rules, err := Layout()
	if err != nil {
		return report.Tree{}, err
	}
	return report.Tree{Layout: rules, Kubernetes: strings.TrimPrefix(release.Kubernetes, "v")}, nil
}
