package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// bare is a Balance without a setting, and dressed has those that rules show.
const (
	bare    = "kind: Balance\nname: web\nlisten: 203.0.113.10:443\nbackends: [10.128.0.2, 10.128.0.3]\n"
	dressed = bare + "scheduler: source-hash\nclients: [192.0.2.0/24]\ndeny: [192.0.2.7]\nclientAddresses: keep\nlimits: {connections: 100}\n"
)

// facts are the settings of a Service that each reader shows.
type facts struct {
	Scheduler, ClientAddresses string
	Allowed, Denied            []netip.Prefix
	Limits                     []api.Limit
}

// TestReadersAgree: 12.73. Without a daemon, commands that read the rules show the settings
// that those show that read the objects.
func TestReadersAgree(t *testing.T) {
	ns, dir := netlab.TestNamespace(t), t.TempDir()
	files := map[string]string{"plain.yaml": bare, "settings.yaml": dressed}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file, flags := filepath.Join(dir, "settings.yaml"), []string{"--hostname-override", "node-1", "--drain-file", ""}
	if r := ask(t, ns, append([]string{"apply", "-q", "-f", file}, flags...)...); r.code != 0 {
		t.Fatalf("apply: %+v", r)
	}

	described := func(args ...string) (f facts) {
		t.Helper()
		r := ask(t, ns, append([]string{"describe", "web", "-o", "json"}, args...)...)
		var s api.Description
		if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
			t.Fatalf("describe %q: %v\n%s%s", args, err, r.stdout, r.stderr)
		}
		for i := range s.Limits {
			s.Limits[i].Dropped = nil // packets count that
		}
		return facts{s.Scheduler, s.ClientAddresses, slices.Concat(s.SourceRanges, s.AllowedSources), s.DeniedSources, s.Limits}
	}
	want := described("-f", file)
	if want.Scheduler == "" || want.ClientAddresses == "" || want.Allowed == nil || want.Denied == nil || want.Limits == nil {
		t.Fatalf("described from objects: %+v", want)
	}
	if diff := cmp.Diff(want, described(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("described from rules (-objects +rules):\n%s", diff)
	}

	var report api.Status
	if r := ask(t, ns, "status", "-o", "json"); json.Unmarshal([]byte(r.stdout), &report) != nil || len(report.ServicePorts) != 1 {
		t.Fatalf("status: %+v", r)
	}
	p := report.ServicePorts[0]
	f := p.Frontends[0]
	if p.Scheduler != want.Scheduler || f.ClientAddresses != want.ClientAddresses || !f.AllowList || !f.DenyList || !f.Limits {
		t.Errorf("status: %+v, want %+v", p, want)
	}

	kinds := []*setting.Setting{setting.Scheduler, setting.ClientAddresses, setting.AllowedClients, setting.DeniedClients, setting.OfLimit(model.LimitConnections)}
	plan := ask(t, ns, append([]string{"diff", "-f", filepath.Join(dir, "plain.yaml"), "-o", "json"}, flags...)...)
	from := ask(t, ns, "diff", "--from", file, "-f", filepath.Join(dir, "plain.yaml"), "-o", "json", "--hostname-override", "node-1")
	for _, k := range kinds {
		for name, r := range map[string]result{"kernel": plan, "files": from} {
			if text := `"` + k.Kind + `"`; !strings.Contains(r.stdout, text) {
				t.Errorf("plan from %s has no %s:\n%s%s", name, text, r.stdout, r.stderr)
			}
		}
	}
}
