package files

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

var check = sourcetest.Check

// follow returns a source of a file that has a content.
func follow(tb testing.TB, content []byte) (s *followed, path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "services.yaml")
	check(tb, os.WriteFile(path, content, 0o600))
	return followOf(&Reader{Paths: []string{path}}), path
}

// followIsolated is [follow] with a directory that keeps what was valid.
func followIsolated(tb testing.TB, content []byte) (s *followed, path string) {
	tb.Helper()
	s, path = follow(tb, content)
	s.files.Isolation = NewIsolation(&Kept{filepath.Join(tb.TempDir(), "valid")})
	return s, path
}

// still is a watcher of files that stay as they are.
type still struct{}

func (still) Run(context.Context, func()) error { return nil }

func followOf(files *Reader) *followed {
	return Follow(files, still{}, "node-1", slog.New(slog.DiscardHandler)).(*followed)
}

// followers are ways to follow a file.
var followers = map[string]func(testing.TB, []byte) (*followed, string){"": follow, "-isolated": followIsolated}
