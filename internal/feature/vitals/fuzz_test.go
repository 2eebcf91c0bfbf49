package vitals

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzRecord: any record of announced addresses is an error, or is read as it is written.
func FuzzRecord(f *testing.F) {
	for _, text := range []string{`[{"Interface":"eth0","Address":"203.0.113.10","marked":true},{"Interface":"eth0","Address":"2001:db8::10"}]`,
		`[{"Interface":"","Address":""},{"Interface":"\u001b","Address":"fe80::1%eth0"},{"Address":"::ffff:192.0.2.1"},{"Address":"::ffff:192.0.2.1","marked":true}]`, `[{"Address":7}]`, "[", "null", "{}", ""} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), recordName) // each fuzzing process has its own
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r := record{path: path}
		var err error
		hostile.CheckMemory(t, len(data), 512, func() { err = r.read() })
		if err != nil {
			if len(r.known) > 0 {
				t.Errorf("%v, and addresses %v", err, r.known)
			}
			return
		}
		known := maps.Clone(r.known)
		r.known = map[place]bool{{Interface: "another"}: true}
		if err := r.write(known); err != nil {
			t.Fatal(err)
		}
		again := record{path: path}
		if err := again.read(); err != nil || !maps.Equal(again.known, known) {
			t.Errorf("%v is written, and %v read, %v", known, again.known, err)
		}
	})
}
