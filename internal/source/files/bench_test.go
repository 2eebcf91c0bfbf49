package files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

func marshal(tb testing.TB, v any) []byte {
	tb.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// inputs returns the same objects in each of the forms that files have.
func inputs(tb testing.TB, n int) map[string][]byte {
	tb.Helper()
	objects := sourcetest.ManyObjects(n)
	var documents bytes.Buffer
	for _, o := range objects {
		documents.WriteString("---\n")
		documents.Write(marshal(tb, o))
	}
	list := map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": objects}
	jsonList, err := json.MarshalIndent(list, "", "    ")
	if err != nil {
		tb.Fatal(err)
	}
	return map[string][]byte{"documents.yaml": documents.Bytes(), "list.yaml": marshal(tb, list), "list.json": jsonList}
}

func BenchmarkLoad(b *testing.B) {
	const n = 10_000
	dir := b.TempDir()
	for name, data := range inputs(b, n) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			b.Fatal(err)
		}
		b.Run(strings.ReplaceAll(name, ".", "-"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				in, err := (&Reader{Paths: []string{path}}).Load()
				if err != nil || len(in.Snapshot.Services) != n || len(in.Snapshot.Slices) != n {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoadDirectory loads a directory of 1,000 files, of which one has changed
// since the last time, or all are new.
func BenchmarkLoadDirectory(b *testing.B) {
	const n = 1000
	dir := b.TempDir()
	write := func(i, round int) {
		var text bytes.Buffer
		for _, o := range sourcetest.ManyObjects(i + 1)[2*i:] {
			text.WriteString("---\n")
			text.Write(marshal(b, o))
		}
		fmt.Fprintf(&text, "# %d\n", round)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.yaml", i)), text.Bytes(), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for i := range n {
		write(i, 0)
	}
	load := func(b *testing.B, f *Reader) {
		if in, err := f.Load(); err != nil || len(in.Snapshot.Services) != n {
			b.Fatal(err)
		}
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			load(b, &Reader{Paths: []string{dir}})
		}
	})
	b.Run("one-changed", func(b *testing.B) {
		f := &Reader{Paths: []string{dir}, follows: true}
		load(b, f)
		for round := 1; b.Loop(); round++ {
			write(0, round)
			load(b, f)
		}
	})
	b.Run("one-changed-of-a-file", func(b *testing.B) {
		path := filepath.Join(b.TempDir(), "all.yaml")
		f := &Reader{Paths: []string{path}, follows: true}
		var all bytes.Buffer
		for _, o := range sourcetest.ManyObjects(n) {
			all.WriteString("---\n")
			all.Write(marshal(b, o))
		}
		for round := 0; b.Loop(); round++ {
			if err := os.WriteFile(path, fmt.Appendf(slices.Clone(all.Bytes()), "# %d\n", round), 0o600); err != nil {
				b.Fatal(err)
			}
			load(b, f)
		}
	})
}
