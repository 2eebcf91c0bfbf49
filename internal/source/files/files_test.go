package files

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

var update = flag.Bool("update", false, "rewrite the expected results in testdata")

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); -update rewrites it:\n%s", name, diff)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatal("no test data", err)
	}
	return names
}

// TestBad loads each file of testdata/bad alone, by a path as a user gives it.
func TestBad(t *testing.T) {
	t.Chdir("testdata/bad")
	for _, name := range glob(t, "*.yaml") {
		t.Run(name, func(t *testing.T) {
			in, err := (&Reader{Paths: []string{name}}).Load()
			if err == nil || in != nil {
				t.Fatalf("Load() = %v, %v; want an error and no input", in, err)
			}
			golden(t, strings.TrimSuffix(name, ".yaml")+".err", err.Error()+"\n")
		})
	}
}

// TestGood prints what each file of testdata/good gives.
func TestGood(t *testing.T) {
	t.Chdir("testdata/good")
	for _, name := range append(glob(t, "*.yaml"), glob(t, "*.json")...) {
		t.Run(name, func(t *testing.T) {
			in, err := (&Reader{Paths: []string{name}}).Load()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".out", printInput(in))
		})
	}
}

// printInput lists the objects of an input with the fields that are not zero.
func printInput(in *Input) string {
	var b strings.Builder
	s := in.Snapshot
	object := func(kind string, v any) {
		fmt.Fprintf(&b, "%s\n  %s\n", kind, strings.ReplaceAll(strings.TrimSpace(sourcetest.Describe(v)), "\n", "\n  "))
	}
	for _, n := range s.Nodes {
		object("Node", n)
	}
	for _, v := range s.Services {
		object("Service", v)
	}
	for _, v := range s.Slices {
		object("EndpointSlice", v)
	}
	if len(s.ServiceCIDRs) > 0 {
		object("ServiceCIDRs", s.ServiceCIDRs)
	}
	for _, w := range in.Warnings.Lines() {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	return b.String()
}

// tree writes files into a new working directory.
func tree(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// service returns the text of a Service.
func service(name, ip string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: %s, ports: [{port: 80}]}\n", name, ip)
}

const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"

func names(in *Input) string {
	var out []string
	for _, s := range in.Snapshot.Services {
		out = append(out, s.Name.Name)
	}
	return strings.Join(out, " ")
}

func TestLoadPaths(t *testing.T) {
	files := map[string]string{
		"a.yaml":       service("a", "10.96.0.1"),
		"b.yml":        service("b", "10.96.0.2"),
		"twice.yaml":   service("a", "10.96.0.3"),
		"other.yaml":   deployment,
		"dir/a.yaml":   service("a", "10.96.0.1"),
		"dir/c.json":   `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "c"}, "spec": {"clusterIP": "10.96.0.4"}}`,
		"dir/d.yaml":   deployment,
		"dir/notes.md": "not read",
		"dir/.a.yaml":  "not: [read",
		"nested/x.yml": service("x", "10.96.0.5"), "nested/more/y.yaml": service("y", "10.96.0.6"),
		"empty/readme": "", "bad/a.yaml": "", "bad/b.yaml": service("b", "x"), "bad/c.yaml": deployment,
	}
	for _, c := range []struct {
		name  string
		paths string
		want  string // names of Services, or the message
		warn  string
	}{
		{"files", "b.yml a.yaml", "b a", ""},
		{"directory", "dir", "a c", "skipped 1 object of other kinds: Deployment 1"},
		{"directory in a directory", "nested", "x", "nested/more: is a directory inside a directory and is not read: name it, too, if it should be"},
		{"standard input", "- a.yaml", "stdin a", ""},
		{"nothing", "", "input: no file is given: name a file, a directory, or - for standard input", ""},
		{"standard input twice", "- -", "standard input: is given twice: give each file once", ""},
		{"file twice", "a.yaml a.yaml", "a.yaml: is given twice: give each file once", ""},
		{"file by two names", "a.yaml ./a.yaml", "./a.yaml: is read already under another name: give each file once", ""},
		{"file and its directory", "dir/a.yaml dir", "dir/a.yaml: is read already under another name: give each file once", ""},
		{"object in two files", "a.yaml twice.yaml", "twice.yaml: document 1 (line 1): Service default/a: is defined twice, first in a.yaml: document 1 (line 1): remove one of them", ""},
		{"missing file", "a.yaml c.yaml", "c.yaml: read file: no such file or directory: check the path", ""},
		{"directory without files", "empty", "empty: holds no file *.yaml, *.yml or *.json: put one there, or name a file", ""},
		{"other kinds only", "a.yaml other.yaml", `other.yaml: no Balance, Service, EndpointSlice, Endpoints, Node or ServiceCIDR in it, only 1 object of other kinds: ` + howToFill, ""},
		{"all that is wrong", "bad c.yaml", "c.yaml: read file: no such file or directory: check the path\n" +
			"bad/a.yaml: no objects: the file is empty: " + howToFill + "\n" +
			`bad/b.yaml: document 1 (line 4): Service default/b: spec.clusterIP: "x" is not an IP address: write it like 10.96.0.1 or fd00::1`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree(t, files)
			f := &Reader{Paths: strings.Fields(c.paths), Stdin: strings.NewReader(service("stdin", "10.96.0.9"))}
			in, err := f.Load()
			got, warnings := "", ""
			if err != nil {
				got = err.Error()
			} else {
				got = names(in)
				warnings = strings.Join(slices.DeleteFunc(in.Warnings.Lines(), func(line string) bool {
					return strings.Contains(line, "has no endpoints") // they have no slices
				}), "\n")
			}
			if diff := cmp.Diff([]string{c.want, c.warn}, []string{got, warnings}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLoadAgain reads standard input once, and files every time.
func TestLoadAgain(t *testing.T) {
	tree(t, map[string]string{"a.yaml": service("a", "10.96.0.1")})
	f := &Reader{Paths: []string{"-", "a.yaml"}, Stdin: strings.NewReader(service("stdin", "10.96.0.9"))}
	for _, want := range []string{"a", "b"} {
		write(t, "a.yaml", service(want, "10.96.0.1"))
		in, err := f.Load()
		if err != nil || names(in) != "stdin "+want {
			t.Errorf("Load() = %+v, %v; want stdin and %s", in, err, want)
		}
	}
}

func TestErrorsUnwrap(t *testing.T) {
	tree(t, map[string]string{"a.yaml": service("a", "x")})
	_, err := (&Reader{Paths: []string{"none.yaml", "a.yaml"}}).Load()
	var field *manifest.FieldError
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &field) || field.Field != "spec.clusterIP" {
		t.Errorf("error %v holds neither the missing file nor the field", err)
	}
	var all manifest.Errors
	if !errors.As(err, &all) || len(all) != 2 || all[1].Line != 4 || all[1].Object != "Service default/a" {
		t.Errorf("error %#v", err)
	}
}

// TestEndpointsBesideSlices takes Endpoints only where there is no slice (2.5).
func TestEndpointsBesideSlices(t *testing.T) {
	const endpoints = "---\napiVersion: v1\nkind: Endpoints\nmetadata: {name: a}\nsubsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]\n"
	const slice = "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a-1, labels: {kubernetes.io/service-name: a}}\naddressType: IPv4\n"
	for want, text := range map[string]string{"a/0/IPv4": endpoints, "a-1": endpoints + slice} {
		in, err := load(service("a", "10.96.0.1") + text)
		if err != nil || len(in.Snapshot.Slices) != 1 || in.Snapshot.Slices[0].Name != want {
			t.Errorf("slices of %v, %v; want %s alone", in, err, want)
		}
	}
}

// TestLoadProxyName takes the Services of one proxy, from documents and lists
// (1.2).
func TestLoadProxyName(t *testing.T) {
	const item = "- {apiVersion: v1, kind: Service, metadata: {name: %s, labels: {service.kubernetes.io/service-proxy-name: %s}}, spec: {clusterIP: 10.96.0.1}}\n"
	text := service("unlabelled", "10.96.0.9") + "---\napiVersion: v1\nkind: List\nitems:\n" +
		fmt.Sprintf(item, "ours", "mine") + fmt.Sprintf(item, "foreign", "other") + fmt.Sprintf(item, "empty-label", `""`)
	for proxy, want := range map[string]string{"": "unlabelled", "mine": "ours", "other": "foreign", "third": ""} {
		in, err := (&Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text), ProxyName: proxy}).Load()
		if err != nil || names(in) != want {
			t.Errorf("proxy %q: Load() = %+v, %v; want %q", proxy, in, err, want)
		}
	}
}

func load(text string) (*Input, error) {
	return (&Reader{Paths: []string{"-"}, Stdin: strings.NewReader(text)}).Load()
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPipeOfCommand: a command reads a pipe that is named; what follows files does not, since it
// would wait for the next writer.
func TestPipeOfCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if in, err := (&Reader{Paths: []string{path}, follows: true}).Load(); in != nil || err == nil || !strings.Contains(err.Error(), "is not a regular file, and cannot be followed") {
		t.Errorf("followed: %v, %v", in, err)
	}
	written := make(chan error)
	go func() {
		pipe, err := os.OpenFile(path, os.O_WRONLY, 0) // waits for the reader
		if err == nil {
			_, err = pipe.WriteString("kind: Balance\nname: web\nlisten: 203.0.113.10:80\nbackends: 192.0.2.1\n")
			err = errors.Join(err, pipe.Close())
		}
		written <- err
	}()
	in, err := (&Reader{Paths: []string{path}}).Load()
	if err != nil || len(in.Snapshot.Services) != 1 {
		t.Errorf("Load() = %v, %v", in, err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// TestSpecialFiles: a pipe among the files is an error, and reading it does not block. A link
// to one is the same.
func TestSpecialFiles(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link to a pipe": func(path string) error {
			return errors.Join(syscall.Mkfifo(path+".fifo", 0o600), os.Symlink(path+".fifo", path))
		},
		"link to a device": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.yaml")
			if err := place(path); err != nil {
				t.Fatal(err)
			}
			in, err := (&Reader{Paths: []string{filepath.Dir(path)}}).Load()
			if err == nil || in != nil || !strings.Contains(err.Error(), path+": is not a regular file") {
				t.Errorf("Load() = %v, %v", in, err)
			}
		})
	}
}
