package hostsfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/internal/hostsfile"
)

// TestRead: names have the first address of the file, in any case.
func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("# names\n\n10.128.0.2 Web1 web1.example # one\n10.128.0.3 web1\nno address\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := hostsfile.Read(file)
	if len(got) != 2 || got["web1"].String() != "10.128.0.2" || got["web1.example"].String() != "10.128.0.2" {
		t.Errorf("got %v", got)
	}
}
