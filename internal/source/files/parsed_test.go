package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	f := &Reader{Paths: []string{dir}, follows: true}
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
	if third := load(); len(third.Snapshot.Services) != 1 || len(f.known.now) > 1 {
		t.Errorf("after a file was removed: %d Services, %d documents kept", len(third.Snapshot.Services), len(f.known.now))
	}
}

// The same holds for the documents of a file, as long as they stay where they are: their
// lines are in messages.
func TestUnchangedDocumentIsNotParsedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "services.yaml")
	f := &Reader{Paths: []string{path}, follows: true}
	load := func(names ...string) *Input {
		t.Helper()
		var text strings.Builder
		for _, name := range names {
			fmt.Fprintf(&text, "---%s\n{kind: Service, apiVersion: v1, metadata: {name: %s}, spec: {type: LoadBalancer, clusterIP: 10.96.0.1, ports: [{port: 80}]}}\n", name[:len(name)-1], name[len(name)-1:])
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		in, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	first, second, third := load("a", "b"), load("c", "b"), load("\na", "b")
	if first.Snapshot.Services[1] != second.Snapshot.Services[1] || first.Snapshot.Services[0] == second.Snapshot.Services[0] {
		t.Error("the unchanged document was parsed again, or the changed one was not")
	}
	if in := third; in.Snapshot.Services[1] == second.Snapshot.Services[1] || !strings.Contains(in.Warnings.Lines()[2], "(line 5)") {
		t.Errorf("a document that moved was not parsed again: %q", in.Warnings.Lines())
	}
}
