package files

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
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
	return followOf(&Reader{Paths: []string{path}}), path
}

// followIsolated is [follow] with a directory that keeps what was valid.
func followIsolated(tb testing.TB, content []byte) (s *followed, path string) {
	tb.Helper()
	s, path = follow(tb, content)
	s.files.Isolation = NewIsolation(&Kept{filepath.Join(tb.TempDir(), "valid")})
	return s, path
}

func followOf(files *Reader) *followed {
	watch := func(context.Context, func()) error { return nil }
	return Follow(files, watch, "node-1", slog.New(slog.DiscardHandler)).(*followed)
}

// followers are ways to follow a file.
var followers = map[string]func(testing.TB, []byte) (*followed, string){"": follow, "-isolated": followIsolated}

// TestKeptMemory limits the memory that stays in use for each object of a file, and the memory
// that the heap has for it: small values that live on between many that die would keep its pages.
func TestKeptMemory(t *testing.T) {
	const n = 5000 // Services of 4 endpoints, each with a slice
	texts := sourcetest.ManyTexts(n)
	pooled := slices.Concat(texts, []string{pool, pooled, "kind: Defaults\ncheck: tcp\n"})
	for form, content := range map[string][]byte{
		"documents": sourcetest.DocumentsOf(texts), "documents-pool": sourcetest.DocumentsOf(pooled),
		"list": sourcetest.ListOf(texts), "list-pool": sourcetest.ListOf(pooled), "directory": nil,
	} {
		for isolated, follow := range followers {
			t.Run(form+isolated, func(t *testing.T) {
				defer debug.SetGCPercent(debug.SetGCPercent(400)) // as in the first sync
				s, path := follow(t, content)
				if form == "directory" {
					s.files.Paths[0] = directory(t, path, texts)
				}
				before := memory()
				u, err := s.Load()
				if err != nil || len(u.Services)/n != 1 {
					t.Fatal(len(u.Services), err)
				}
				u = nil
				after := memory()
				live, pages := (after.HeapAlloc-before.HeapAlloc)/(2*n), (after.HeapInuse-before.HeapInuse)/(2*n)
				t.Logf("%d bytes live for an object, %d bytes of pages", live, pages)
				mostLive, mostPages := uint64(450), uint64(600)
				if isolated != "" { // texts, compressed, and what compresses them
					mostLive, mostPages = mostLive+150, mostPages+250
				}
				if live > mostLive || pages > mostPages {
					t.Errorf("an object takes %d bytes and has %d bytes of pages, more than %d and %d", live, pages, mostLive, mostPages)
				}
				runtime.KeepAlive(s)
			})
		}
	}
}

// directory returns one of files of 40 objects.
func directory(t *testing.T, file string, texts []string) string {
	t.Helper()
	dir := filepath.Dir(file)
	for i := 0; i < len(texts); i += 40 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), sourcetest.DocumentsOf(texts[i:i+40]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	return dir
}

// memory returns the memory of the heap that is in use.
func memory() (m runtime.MemStats) {
	for range 3 { // what an earlier collection has found, and finalizers hold
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m
}

// TestEditAllocates: the memory that an edit of a file takes depends on the edit, not on the file.
func TestEditAllocates(t *testing.T) {
	for form, file := range map[string]func([]string) []byte{"documents": sourcetest.DocumentsOf, "list": sourcetest.ListOf} {
		for name, text := range map[string]string{"value": "  resourceVersion: \"7\"\n", "line": "  resourceVersion: \"123456\"\n  generation: 1\n"} {
			for isolated, follow := range followers {
				t.Run(form+"-"+name+isolated, func(t *testing.T) {
					small, large := allocated(t, follow, file, text, 500), allocated(t, follow, file, text, 5000)
					t.Logf("%d bytes with 500 Services, %d bytes with 5,000", small, large)
					if large > 160_000 || large > small+small/4 {
						t.Errorf("an edit takes %d bytes with 500 Services, %d bytes with 5,000: more than 160,000, or more than of the edit", small, large)
					}
				})
			}
		}
	}
}

// allocated returns how many bytes reading a file takes after an edit in its middle.
func allocated(t *testing.T, follow func(testing.TB, []byte) (*followed, string), file func([]string) []byte, text string, services int) uint64 {
	t.Helper()
	texts := sourcetest.ManyTexts(services)
	s, path := follow(t, file(texts))
	if _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	texts[services] = strings.Replace(texts[services], "  resourceVersion: \"123456\"\n", text, 1)
	texts[services] = strings.Replace(texts[services], "clusterIP: 10.96", "clusterIP: 10.97", 1)
	texts[services] = strings.Replace(texts[services], "- 10.96", "- 10.97", 1)
	if err := os.WriteFile(path, file(texts), 0o600); err != nil {
		t.Fatal(err)
	}
	before := memory().TotalAlloc
	u, err := s.Load()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if err != nil || len(u.Services) != 1 {
		t.Fatal(u, err)
	}
	return m.TotalAlloc - before
}
