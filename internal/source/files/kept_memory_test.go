package files

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// follow returns a source of a file that has a content.
func follow(tb testing.TB, content []byte) (s *followed, path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "services.yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	watch := func(context.Context, func()) error { return nil }
	return Follow(&Reader{Paths: []string{path}}, watch, "node-1", slog.New(slog.DiscardHandler)).(*followed), path
}

// TestKeptMemory limits the memory that stays in use for each object of a file, and the memory
// that the heap has for it: small values that live on between many that die would keep its pages.
func TestKeptMemory(t *testing.T) {
	const n = 5000 // Services of 4 endpoints, each with a slice
	texts := sourcetest.ManyTexts(n)
	for form, content := range map[string][]byte{"documents": sourcetest.DocumentsOf(texts), "list": sourcetest.ListOf(texts)} {
		t.Run(form, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(400)) // as in the first sync
			s, _ := follow(t, content)
			before := memory()
			u, err := s.Load()
			if err != nil || len(u.Services) != n {
				t.Fatal(len(u.Services), err)
			}
			u = nil
			after := memory()
			live, pages := (after.HeapAlloc-before.HeapAlloc)/(2*n), (after.HeapInuse-before.HeapInuse)/(2*n)
			t.Logf("%d bytes live for an object, %d bytes of pages", live, pages)
			if live > 450 || pages > 550 {
				t.Errorf("an object takes %d bytes and has %d bytes of pages, more than 450 and 550", live, pages)
			}
			runtime.KeepAlive(s)
		})
	}
}

// memory returns the memory of the heap that is in use.
func memory() (m runtime.MemStats) {
	for range 3 { // what an earlier collection has found, and finalizers hold
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m
}
