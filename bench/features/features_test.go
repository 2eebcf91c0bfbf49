package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
	"github.com/nftproxy/nftproxy/test/program"
)

var binary string

func TestMain(m *testing.M) { os.Exit(program.Run(&binary, "../../cmd/nftproxy", m.Run)) }

// TestMeasure measures some rows: each way to dial, and a daemon.
func TestMeasure(t *testing.T) {
	t.Parallel()
	netlab.TestNamespace(t) // where that is permitted
	all, err := selectFeatures(again + "," + plainLB + "," + plainNode + ",NodePort on localhost")
	if err != nil {
		t.Fatal(err)
	}
	p := plan{nftproxy: binary, dir: t.TempDir(), features: all, family: model.IPv6, services: 25, runs: 1, rounds: 1, connections: 3}
	found, err := p.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range all {
		if n := len(found[row.name].costs); n != 1 {
			t.Errorf("%s: measured in %d rounds, want 1", row.name, n)
		}
	}
}

// TestRulesDiffer checks that each row has other rules than what it is compared with, and
// none a warning: settings that do nothing would cost nothing.
func TestRulesDiffer(t *testing.T) {
	t.Parallel()
	rules := make(map[string]string)
	for i := range features {
		f := &features[i]
		rules[f.name] = render(t, f)
		if f.beside == "" || f.name == again || f.daemon {
			continue
		}
		if base, ok := rules[f.beside]; !ok {
			t.Errorf("%s: %q is not a row before it", f.name, f.beside)
		} else if base == rules[f.name] {
			t.Errorf("%s has the rules of %s", f.name, f.beside)
		}
	}
}

func render(t *testing.T, f *feature) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "services.yaml")
	if err := os.WriteFile(file, []byte(f.objects(model.IPv4, 25, address(model.IPv4, "192.0.2.0", "", 1), unusedEndpoints(model.IPv4, 0))), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, append([]string{"render", "--strict", "-f", file, "--hostname-override", "node"}, f.flags...)...).Output()
	if err != nil {
		t.Fatalf("%s: %v", f.name, err)
	}
	return string(out)
}
