package footprint_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/footprint"
)

var update = flag.Bool("update", false, "rewrite the table of docs/footprint.md")

const page = "../../docs/footprint.md"

// TestPage keeps the table of the page in step with the kinds.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin kinds -->\n", "<!-- end kinds -->"
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", page)
	}
	var b strings.Builder
	b.WriteString("\n| what | marked by | compared and restored | removed by |\n|---|---|---|---|\n")
	for _, k := range footprint.Kinds {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", k.What, k.Mark, k.Restored, k.Removed)
		for _, part := range []string{k.Name, k.What, k.Mark, k.Restored, k.Removed} {
			if part == "" || strings.ContainsAny(part, "|\n") {
				t.Errorf("%s: a part is empty or breaks the table: %q", k.Name, part)
			}
		}
		if (k.Remove != nil) != strings.Contains(k.Removed, "`cleanup`") && !strings.Contains(k.Removed, "`cleanup` leaves") {
			t.Errorf("%s: the text says something else about cleanup than what it does", k.Name)
		}
	}
	want := head + begin + b.String() + "\n" + end + tail
	switch {
	case want == string(text):
	case *update:
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from the kinds: run go test ./internal/footprint -update", page)
	}
}

// writes match what leaves something outside of the tables "ip nftproxy" and "ip6 nftproxy": files, sockets,
// settings, addresses and routes, tables of the library for nf_tables, objects of an API server, and files in
// systemd.
var writes = regexp.MustCompile(`\bos\.(WriteFile|Create|Rename|Mkdir|MkdirAll|Symlink|Link|Truncate)\(` +
	`|\batomicfile\.(Write|Replace)\(|\bO_(CREATE|WRONLY|RDWR)\b|[lL]isten\("unix|ListenUnix|UnixSocket` +
	`|\bunix\.(RTM_(NEW|DEL|SET)\w+|NFNL_SUBSYS_CTNETLINK|Mknod|Mkfifo)` +
	`|\.(Addr|Route|Rule|Neigh|Link|Qdisc)(Add|Append|Replace|Change|Del|Delete)\(|\.LinkSet\w+\(` +
	`|\bnftables\.Table\{Name: |\.AddTable\(|\.(Post|Put)\(\)|\.Patch\(\w|FDSTORE=`)

// passing are source files that match, and leave nothing: with the number of places, and why.
var passing = map[string]struct {
	places int
	why    string
}{
	"internal/atomicfile/write.go":         {1, "writes for all others"},
	"internal/atomicfile/read.go":          {2, "opens a lock file for others, which name it"},
	"internal/conntest/dial/room.go":       {6, "a network namespace that ends with the thread"},
	"internal/fastpath/links.go":           {1, "follows the kernel"},
	"internal/fastpath/room.go":            {4, "a network namespace that ends with the thread"},
	"internal/fastpath/rules.go":           {2, "tables of such a namespace"},
	"internal/fastpath/space.go":           {2, "such a namespace"},
	"internal/fleet/forward.go":            {1, "asks a pod"},
	"internal/preflight/check.go":          {1, "asks whether the kernel would do it"},
	"internal/probe/checker/exec_linux.go": {1, "the OOM score of a process that it starts"},
	"internal/takeover/guard.go":           {2, "a table that ends with its socket"},
	"internal/takeover/ipvs.go":            {1, "removes what kube-proxy has left"},
	"internal/trace/table.go":              {1, "a table that ends with its socket"},
}

// TestWriters: each place that writes outside of the tables belongs to a kind, or is known to leave nothing.
func TestWriters(t *testing.T) {
	found := make(map[string]int)
	for _, root := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/testkit/") {
				return err
			}
			text, err := os.ReadFile(path)
			if n := len(writes.FindAll(text, -1)); n > 0 {
				found[strings.TrimPrefix(path, "../../")] = n
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var listed []string
	for _, k := range footprint.Kinds {
		for _, w := range k.Writers {
			listed = append(listed, w)
			if !slices.ContainsFunc(keysOf(found), func(f string) bool { return within(f, w) }) {
				t.Errorf("%s: %s writes nothing", k.Name, w)
			}
		}
	}
	for file, places := range found {
		if slices.ContainsFunc(listed, func(w string) bool { return within(file, w) }) {
			continue
		}
		if allowed := passing[file].places; places != allowed {
			t.Errorf("%s writes in %d places outside of the tables, and may in %d: add a kind of footprint, or why it leaves nothing", file, places, allowed)
		}
	}
	for file := range passing {
		if found[file] == 0 {
			t.Errorf("%s writes nothing: remove it from the list", file)
		}
	}
}

// within reports whether a file is a writer, or in its folder.
func within(file, writer string) bool { return file == writer || strings.HasPrefix(file, writer+"/") }

func keysOf(m map[string]int) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}
