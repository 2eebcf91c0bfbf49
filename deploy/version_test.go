package deploy_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestVersion: all places name the version of the file VERSION. A new version is a line there,
// and the changes that this test then asks for.
func TestVersion(t *testing.T) {
	version := strings.TrimSpace(string(read(t, "../VERSION")))
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`).MatchString(version) {
		t.Fatalf("VERSION is %q", version)
	}
	for _, c := range []struct{ file, pattern string }{
		{"helm/nftproxy/Chart.yaml", `(?m)^version: (\S+)$`},
		{"helm/nftproxy/Chart.yaml", `(?m)^appVersion: (\S+)$`},
		{"helm/nftproxy/README.md", `image\.tag=v(\S+)`},
		{"Dockerfile", `VERSION=v(\S+)`},
		{"Dockerfile", `nftproxy:v(\S+)`},
		{"../docs/verify.md", `(?m)^VERSION=(\S+)$`},
		{"../docs/kubectl.md", `/releases/download/v([^/]+)/`},
		// The section below Unreleased.
		{"../CHANGELOG.md", `(?m)^## ([0-9]\S+) - 20[0-9]{2}-[0-9]{2}-[0-9]{2}$`},
	} {
		found := regexp.MustCompile(c.pattern).FindStringSubmatch(string(read(t, c.file)))
		if found == nil || found[1] != version {
			t.Errorf("%s has %q for %s, and VERSION is %s", c.file, found, c.pattern, version)
		}
	}
	if changes := string(read(t, "../CHANGELOG.md")); strings.Index(changes, "\n## Unreleased\n") > strings.Index(changes, "\n## "+version) {
		t.Error("the changelog does not begin with the section Unreleased")
	}
}
