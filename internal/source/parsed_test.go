package source

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A change of one file costs that file: what was read from the others is used again,
// with the same warnings.
func TestUnchangedFileIsNotParsedAgain(t *testing.T) {
	dir := t.TempDir()
	write := func(name, address string) {
		t.Helper()
		text := fmt.Sprintf("{kind: Service, apiVersion: v1, metadata: {name: %s}, spec: {clusterIP: %s, ports: [{port: 80}]}}\n", name, address)
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "10.96.0.1")
	write("b", "10.96.0.2")
	f := &Files{Paths: []string{dir}}
	load := func() *Input {
		t.Helper()
		in, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	first := load()
	write("b", "10.96.0.3")
	second := load()
	if first.Snapshot.Services[0] != second.Snapshot.Services[0] {
		t.Error("the unchanged file was parsed again")
	}
	if got := second.Snapshot.Services[1].ClusterIPs[0].String(); got != "10.96.0.3" {
		t.Errorf("the changed file gives %s", got)
	}
	if len(first.Warnings) == 0 || len(first.Warnings) != len(second.Warnings) {
		t.Errorf("warnings were %v and are %v", first.Warnings, second.Warnings)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if third := load(); len(third.Snapshot.Services) != 1 || len(f.parsed) > 1 {
		t.Errorf("after a file was removed: %d Services, %d files kept", len(third.Snapshot.Services), len(f.parsed))
	}
}
