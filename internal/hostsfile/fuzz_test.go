package hostsfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/hostsfile"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzRead: each name that is read has an address, and the file contains the name.
func FuzzRead(f *testing.F) {
	for _, text := range []string{"10.128.0.2 Web1 web1.example # one\n::1 localhost\n", "10.0.0.1\n# 10.0.0.2 a\n10.0.0.300 b\nfe80::1%lo c\n", "\xff 10.0.0.1\r\n10.0.0.1 \x1b[2J\u0130\n"} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "hosts") // each fuzzing process has its own
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		hostile.CheckMemory(t, len(text), 256, func() {
			for name, a := range hostsfile.Read(path) {
				if !a.IsValid() || name == "" || name != strings.ToLower(name) || strings.ContainsAny(name, " \n#") {
					t.Errorf("%q has the address %s", name, a)
				}
			}
		})
	})
}
