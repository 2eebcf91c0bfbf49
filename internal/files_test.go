package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// readers are the files of the source that open something else than through package atomicfile,
// with the number of places, and why. A pipe in place of a file would block all others.
var readers = map[string]struct {
	places int
	why    string
}{
	"internal/atomicfile/read.go":        {1, "opens regular files for all others"},
	"internal/atomicfile/write.go":       {1, "the directory, to sync it"},
	"internal/source/rewrite/rewrite.go": {1, "the directory, to lock it"},
	"internal/source/files/files.go":     {1, "commands get their input from a pipe on purpose, as in -f <(program)"},
	"internal/control/socket.go":         {1, "the directory of a socket with a long path"},
	"internal/command/input/import.go":   {1, "a command, which may get its input from a pipe"},
	"internal/cli/common/bundle.go":      {1, "creates the archive"},
	"internal/command/support/bundle.go": {1, "files of /proc and /sys"},
	"internal/host/system.go":            {2, "files of /proc/sys"},
	"internal/host/process.go":           {3, "files of /proc"},
	"internal/machine/programs.go":       {1, "files of /proc"},
	"internal/machine/read.go":           {1, "files of /proc/sys"},
	"internal/takeover/servers.go":       {1, "files of /proc"},
	"internal/xtables/xtables.go":        {1, "files of /proc"},
}

// openers match calls that open a file. What a literal path names below /proc is no file that
// could be a pipe.
var (
	openers = regexp.MustCompile(`\bos\.(ReadFile|Open|OpenFile|OpenInRoot)\(`)
	kernels = regexp.MustCompile(`\bos\.(ReadFile|Open)\((fmt\.Sprintf\()?"/proc/`)
)

// TestFilesAreRegular: files are opened by package atomicfile, which refuses pipes and devices.
func TestFilesAreRegular(t *testing.T) {
	found := make(map[string]int)
	for _, root := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testkit") {
				return err
			}
			text, err := os.ReadFile(path)
			calls := len(openers.FindAll(text, -1)) - len(kernels.FindAll(text, -1))
			if calls > 0 {
				found[strings.TrimPrefix(path, "../")] = calls
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, calls := range found {
		if allowed := readers[path].places; calls != allowed {
			t.Errorf("%s opens files in %d places, and may in %d: use atomicfile.Read or Open", path, calls, allowed)
		}
	}
	for path := range readers {
		if found[path] == 0 {
			t.Errorf("%s opens no file: remove it from the list", path)
		}
	}
}
