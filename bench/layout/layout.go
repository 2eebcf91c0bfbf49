// Package layout identifies the rules that a measurement is of: two programs with the
// same layout write the same rules for a Service of each kind, so that figures about one
// hold for the other.
package layout

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os/exec"
	"strings"
)

// Objects has a Service of each kind that benchmarks measure, as YAML.
//
//go:embed objects.yaml
var Objects string

// Node and ClusterCIDRs are the settings of the rules.
const (
	Node         = "node-1"
	ClusterCIDRs = "10.128.0.0/9,fd00:10:128::/48"
)

// Of returns the layout of the rules that the program at a path writes, which may be of
// another version.
func Of(program string) (string, error) {
	cmd := exec.Command(program, "render", "-f", "-", "--hostname-override", Node, "--cluster-cidr", ClusterCIDRs)
	cmd.Stdin = strings.NewReader(Objects)
	var rules, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &rules, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("ask %s for the rules of the layout: %w\n%s", program, err, &complaints)
	}
	return Digest(rules.Bytes()), nil
}

// Digest returns the layout of rules as nftproxy prints them. It is short enough for a
// table.
func Digest(rules []byte) string {
	sum := sha256.Sum256(rules)
	return hex.EncodeToString(sum[:4])
}
