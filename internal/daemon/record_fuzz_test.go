package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/internal/footprint"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
)

// FuzzRecord: 13.30. Any record is read once, and says of objects what this program has written itself.
func FuzzRecord(f *testing.F) {
	self, err := program()
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{`{"Kernel":{"Boot":"b","Clock":"c","Namespace":7},"Generation":7,"Made":1,"Rules":"AAAA","Slots":[{"Frontend":{},"Order":[0]}],"Key":"AAAA","Objects":"AAAA","Sizes":[{}],"Program":"AAAA"}`,
		`{"Objects":"AAAA"}`, `{"Objects":"AAAA","Program":null}`, `{"Generation":-1}`, "{", "null", "", "[]"} {
		f.Add([]byte(text))
	}
	d := &Daemon{RuntimeDirectory: f.TempDir()} // each fuzzing process has its own
	path := filepath.Join(d.RuntimeDirectory, footprint.RulesFile)
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		hostile.CheckMemory(t, len(data), 512, func() {
			r, err := d.takeRecord()
			if err == nil && (r == nil || len(r.known().Objects) > 0 && !bytes.Equal(r.Program, self)) {
				t.Errorf("%s is read as %+v", data, r)
			}
		})
		if _, err := os.Lstat(path); err == nil {
			t.Error("the next start would read it again")
		}
	})
}
