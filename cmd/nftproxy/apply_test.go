package main

import (
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// TestApplySummary: apply names the Services, and loads many into an empty kernel with
// the same result as one transaction.
func TestApplySummary(t *testing.T) {
	path := writeFile(t, many(300))
	for _, elements := range []string{"auto", "always"} {
		ns := netlab.TestNamespace(t)
		r := in(t, ns, "apply", "-f", path, "--hostname-override", "node-1", "--elements", elements)
		if r.code != 0 || !strings.HasPrefix(r.stdout, "Services: 300 added.\n  + default/web-0: added, 1 frontend, 2 endpoints\n") ||
			!strings.Contains(r.stdout, " to add, 0 to change, 0 to delete.\n") {
			t.Errorf("%s: code %d, %s%s", elements, r.code, r.stdout, r.stderr)
		}
		if lines := strings.Count(r.stdout, "\n"); elements == "auto" && lines > 60 || elements == "always" && lines < 1200 {
			t.Errorf("%s: %d lines", elements, lines)
		}
		if r := in(t, ns, "diff", "-f", path, "--hostname-override", "node-1"); r.code != 0 || r.stdout != "No changes.\n" {
			t.Errorf("%s: then diff has code %d, %s", elements, r.code, r.stdout)
		}
		fewer := strings.Replace(many(299), "10.128.1.2], nodeName: node-2", "10.128.1.2], nodeName: node-2, conditions: {ready: false}", 1)
		r = in(t, ns, "apply", "-f", writeFile(t, fewer), "--hostname-override", "node-1")
		want := "Services: 1 changed, 1 removed.\n  ~ default/web-0: 1 endpoint not ready (10.128.1.2:8080)\n  - default/web-299: removed, 1 frontend, 2 endpoints\n"
		if r.code != 0 || !strings.HasPrefix(r.stdout, want) {
			t.Errorf("code %d, %s%s", r.code, r.stdout, r.stderr)
		}
	}
}

// TestApplyQuiet prints errors, and nothing else (12.68).
func TestApplyQuiet(t *testing.T) {
	ns := netlab.TestNamespace(t)
	path := writeFile(t, service+"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n---\n"+node)
	for range 2 {
		if r := in(t, ns, "apply", "--quiet", "-f", path, "--hostname-override", "unknown"); r.code != 0 || r.stdout+r.stderr != "" {
			t.Errorf("code %d, %s%s", r.code, r.stdout, r.stderr)
		}
	}
	if !rendered(t, ns, "10.96.0.10:80") {
		t.Error("nothing is applied")
	}
	if r := in(t, ns, "apply", "-q", "-f", "missing.yaml"); r.code != cli.CodeError || !strings.Contains(r.stderr, "missing.yaml") {
		t.Errorf("code %d, %s", r.code, r.stderr)
	}
}

// TestApplyJSON: 12.67. What apply has changed is the document that diff printed before, also
// of a load that would be made in parts.
func TestApplyJSON(t *testing.T) {
	ns := netlab.TestNamespace(t)
	for _, path := range []string{writeFile(t, many(300)), writeFile(t, many(301)), writeFile(t, many(301))} {
		planned := in(t, ns, "diff", "-f", path, "-o", "json")
		applied := in(t, ns, "apply", "-f", path, "-o", "json")
		if applied.code != 0 || applied.stdout != planned.stdout || !strings.Contains(applied.stdout, `"summary": {`) {
			t.Errorf("code %d, %.500s%s, diff says %.500s", applied.code, applied.stdout, applied.stderr, planned.stdout)
		}
	}
	if r := in(t, ns, "apply", "-f", "x.yaml", "-o", "markdown"); r.code != cli.CodeError || !strings.Contains(r.stderr, `unknown format "markdown": use text, json or yaml`) {
		t.Errorf("code %d, %s", r.code, r.stderr)
	}
}
