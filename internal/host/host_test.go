package host

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes a directory that looks like a machine: files below it, by name.
// A file without content is a directory, which cannot be read or written.
func tree(t *testing.T, files map[string]string) System {
	t.Helper()
	s := System(t.TempDir())
	for name, content := range files {
		dir := filepath.Dir(s.absolutePath(name))
		if content == "" {
			dir = s.absolutePath(name)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if content == "" {
			continue
		}
		if err := os.WriteFile(s.absolutePath(name), []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// content returns what a file of the tree holds.
func content(t *testing.T, s System, name string) string {
	t.Helper()
	text, err := s.read(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// logger logs into the returned text, in lines without time.
func logger() (*slog.Logger, *strings.Builder) {
	var b strings.Builder
	return slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	})), &b
}
