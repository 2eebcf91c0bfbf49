package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/internal/testkit/tarball"
)

// TestBundle: 18.20, 18.21, 11.30. On one machine the archive has the documents of the daemon and the
// rules of the kernel; without a daemon it has the rules.
func TestBundle(t *testing.T) {
	ns, dir := netlab.TestLab(t, 1).Node.Namespace, t.TempDir()
	broken := strings.ReplaceAll(service, "name: web", "name: cart") + "\n---\n" + strings.ReplaceAll(strings.Split(service, "---")[0], "10.96.0.10", "10.96.0.11")
	input := writeFile(t, broken)
	daemon := start(t, ns, "nftproxy", "run", "-f", input, "--hostname-override=rack7", "--drain-file", "")
	eventually(t, "rules are applied", func() bool {
		return strings.Contains(daemon.log.String(), "rules applied") && strings.Contains(daemon.log.String(), "msg=listening")
	})
	collect := func(name string) map[string]string {
		t.Helper()
		file := filepath.Join(dir, name)
		if r := ask(t, ns, "bundle", "--file", file); r.code != 0 || r.stderr != "" {
			t.Fatalf("bundle: %+v", r)
		}
		return tarball.Unpack(t, file)
	}
	files := collect("plain.tar.gz")
	if r := ask(t, ns, "bundle", "--file", filepath.Join(dir, "plain.tar.gz")); r.code != cli.CodeError || !strings.Contains(r.stderr, "name another file with --file") {
		t.Errorf("the file exists: %+v", r)
	}
	for name, want := range map[string]string{
		"machine/status.json": "10.96.0.10", "machine/rules.txt": "table ip nftproxy", "machine/basis.json": "settings", "machine/live.json": "syncs",
		"machine/metrics.txt": "nftproxy_", "machine/flagz.txt": "hostname-override", "machine/check.json": "{", "machine/kernel.txt": "Linux version",
		"machine/describe/default/web.json": "10.96.0.11", "contents.txt": "machine/rules.txt",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%.500s", name, want, files[name])
		}
	}
	if !strings.Contains(files["machine/rules.txt"], "10.128.1.2") {
		t.Errorf("the rules lack an endpoint:\n%s", files["machine/rules.txt"])
	}

	for name, text := range files {
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is not JSON:\n%.500s", name, text)
		}
	}

	daemon.kill()
	files = collect("dead.tar.gz")
	if !strings.Contains(files["machine/rules.txt"], "10.128.1.2") || !strings.Contains(files["contents.txt"], "machine/status.json  missing: no daemon answers") {
		t.Errorf("without a daemon:\n%s\n%s", files["contents.txt"], files["machine/rules.txt"])
	}
}
