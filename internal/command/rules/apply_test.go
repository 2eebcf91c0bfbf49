package rules

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestApplySummary: apply names the Services, and loads many into an empty kernel with
// the same result as one transaction.
func TestApplySummary(t *testing.T) {
	path := commandline.WriteFile(t, many(300))
	for _, elements := range []string{"auto", "always"} {
		ns := netlab.TestNamespace(t)
		r := program.RunIn(t, ns, "apply", "-f", path, "--hostname-override", "node-1", "--elements", elements)
		if r.Code != 0 || !strings.HasPrefix(r.Stdout, "Services: 300 added.\n  + default/web-0: added, 1 frontend, 2 endpoints\n") ||
			!strings.Contains(r.Stdout, " to add, 0 to change, 0 to delete.\n") {
			t.Errorf("%s: code %d, %s%s", elements, r.Code, r.Stdout, r.Stderr)
		}
		if lines := strings.Count(r.Stdout, "\n"); elements == "auto" && lines > 60 || elements == "always" && lines < 1200 {
			t.Errorf("%s: %d lines", elements, lines)
		}
		if r := program.RunIn(t, ns, "diff", "-f", path, "--hostname-override", "node-1"); r.Code != 0 || r.Stdout != "No changes.\n" {
			t.Errorf("%s: then diff has code %d, %s", elements, r.Code, r.Stdout)
		}
		fewer := strings.Replace(many(299), "10.128.1.2], nodeName: node-2", "10.128.1.2], nodeName: node-2, conditions: {ready: false}", 1)
		r = program.RunIn(t, ns, "apply", "-f", commandline.WriteFile(t, fewer), "--hostname-override", "node-1")
		want := "Services: 1 changed, 1 removed.\n  ~ default/web-0: 1 endpoint not ready (10.128.1.2:8080)\n  - default/web-299: removed, 1 frontend, 2 endpoints\n"
		if r.Code != 0 || !strings.HasPrefix(r.Stdout, want) {
			t.Errorf("code %d, %s%s", r.Code, r.Stdout, r.Stderr)
		}
	}
}

// TestApplyQuiet prints errors, and nothing else (12.68).
func TestApplyQuiet(t *testing.T) {
	ns := netlab.TestNamespace(t)
	path := commandline.WriteFile(t, commandline.Service+"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n---\n"+commandline.Node)
	for range 2 {
		if r := program.RunIn(t, ns, "apply", "--quiet", "-f", path, "--hostname-override", "unknown"); r.Code != 0 || r.Stdout+r.Stderr != "" {
			t.Errorf("code %d, %s%s", r.Code, r.Stdout, r.Stderr)
		}
	}
	if r := program.RunIn(t, ns, "diff", "-f", path, "--hostname-override", "unknown"); r.Code != 0 || r.Stdout != "No changes.\n" {
		t.Errorf("applied? code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := program.RunIn(t, ns, "apply", "-q", "-f", "missing.yaml"); r.Code != cli.CodeError || !strings.Contains(r.Stderr, "missing.yaml") {
		t.Errorf("code %d, %s", r.Code, r.Stderr)
	}
}

// TestApplyJSON: 12.67. What apply has changed is the document that diff printed before, also
// of a load that would be made in parts.
func TestApplyJSON(t *testing.T) {
	ns := netlab.TestNamespace(t)
	for _, path := range []string{commandline.WriteFile(t, many(300)), commandline.WriteFile(t, many(301)), commandline.WriteFile(t, many(301))} {
		planned := program.RunIn(t, ns, "diff", "-f", path, "-o", "json")
		applied := program.RunIn(t, ns, "apply", "-f", path, "-o", "json")
		if applied.Code != 0 || applied.Stdout != planned.Stdout || !strings.Contains(applied.Stdout, `"summary": {`) {
			t.Errorf("code %d, %.500s%s, diff says %.500s", applied.Code, applied.Stdout, applied.Stderr, planned.Stdout)
		}
	}
	if r := program.RunIn(t, ns, "apply", "-f", "x.yaml", "-o", "markdown"); r.Code != cli.CodeError || !strings.Contains(r.Stderr, `unknown format "markdown": use text, json or yaml`) {
		t.Errorf("code %d, %s", r.Code, r.Stderr)
	}
}
