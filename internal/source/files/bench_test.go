package files

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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
	texts := sourcetest.ManyTexts(n)
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": sourcetest.ManyObjects(n)}
	jsonList, err := json.MarshalIndent(list, "", "    ")
	if err != nil {
		tb.Fatal(err)
	}
	return map[string][]byte{"documents.yaml": sourcetest.DocumentsOf(texts), "list.yaml": sourcetest.ListOf(texts), "list.json": jsonList}
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

// BenchmarkEdit reads a file of 10,000 Services again in which one has changed, or has a line
// more, as a follower does, and reports the memory that stays in use for it.
func BenchmarkEdit(b *testing.B) {
	const n = 10_000
	for form, file := range map[string]func([]string) []byte{"documents": sourcetest.DocumentsOf, "list": sourcetest.ListOf} {
		for edit, text := range map[string]string{"one-value": "  resourceVersion: \"%06d\"\n", "one-line": "  resourceVersion: \"%06d\"\n  generation: 1\n"} {
			for isolated, follow := range followers {
				b.Run(form+"-"+edit+isolated, func(b *testing.B) {
					texts := sourcetest.ManyTexts(n)
					before := heap()
					s, path := follow(b, file(texts))
					load := func(changed int) time.Duration {
						b.StartTimer()
						start := cpuTime(b)
						u, err := s.Load()
						taken := cpuTime(b) - start
						b.StopTimer()
						if err != nil || len(u.Services) != changed {
							b.Fatal(len(u.Services), err)
						}
						return taken
					}
					load(n)
					kept, original, cpu := heap()-before, texts[n], time.Duration(0)
					b.ResetTimer()
					for i := range b.N {
						texts[n] = strings.Replace(original, "  resourceVersion: \"123456\"\n", fmt.Sprintf(text, i), 1)
						texts[n] = strings.ReplaceAll(texts[n], " 10.96.", fmt.Sprintf(" 10.%d.", 97+i%2))
						if err := os.WriteFile(path, file(texts), 0o600); err != nil {
							b.Fatal(err)
						}
						runtime.GC()
						cpu += load(1)
					}
					b.ReportMetric(float64(kept)/1e6, "MB-kept")
					b.ReportMetric(cpu.Seconds()*1e3/float64(b.N), "cpu-ms/op")
					runtime.KeepAlive(s)
				})
			}
		}
	}
}

// cpuTime returns the time of the CPU that this process has taken.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// heap returns how much of the heap is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
