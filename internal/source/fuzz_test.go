package source

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzLoad holds that any input gives a snapshot or errors that can be printed,
// never both and never a panic, and that a List gives the same whether it is
// read by item or as a whole.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml", "testdata/good/*.json"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			f.Fatal("no seeds", err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if len(data) < 4096 {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		in, err := load(string(text))
		if (in == nil) == (err == nil) {
			t.Fatalf("Load() = %v, %v", in, err)
		}
		var all Errors
		if err != nil && (!errors.As(err, &all) || len(all) == 0 || err.Error() == "") {
			t.Fatalf("Load() = %#v", err)
		}
		sameWhole(t, text)
	})
}
