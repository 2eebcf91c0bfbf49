package names

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/internal/feature"
)

// TestLeftNames: the cleanup removes the last answers of DNS from the runtime directory, and says so; without such it says nothing.
func TestLeftNames(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, FileName)
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	remove := Kind{}.Leaves()[0].Remove
	if removed, err := remove(feature.Scope{Runtime: dir}); err != nil || len(removed) != 1 || removed[0] != "file "+file {
		t.Errorf("removed %q, %v", removed, err)
	}
	if _, err := os.Lstat(file); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
	if removed, err := remove(feature.Scope{Runtime: dir}); err != nil || len(removed) != 0 {
		t.Errorf("removed again %q, %v", removed, err)
	}
}
