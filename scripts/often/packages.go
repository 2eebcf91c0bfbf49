package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// builder is the package whose importers start the program, which they do not import.
const builder = "/test/program"

// suite is a package to run, and what it is built of.
type suite struct {
	path   string // import path
	name   string // below the module
	dir    string
	hash   string // of its sources, tests and their data
	built  string // hash of these and of all that it depends on
	wanted int    // runs
	race   bool
	starts bool // its tests start the program

	rehash func() (string, error) // built, of the files as they are then
}

// listed is a package as "go list -json" prints it.
type listed struct {
	ImportPath, Dir, Name, ForTest              string
	Standard                                    bool
	Module                                      *struct{ Path, Version string }
	Deps                                        []string
	GoFiles, CgoFiles, SFiles, HFiles, CFiles   []string
	TestGoFiles, XTestGoFiles                   []string
	EmbedFiles, TestEmbedFiles, XTestEmbedFiles []string
}

func (p listed) ours() bool { return !p.Standard && p.Module != nil && p.Module.Version == "" }

// findPackages returns what to run: suites last, since they take longest.
func (o options) findPackages(ctx context.Context) (all []suite, err error) {
	known, err := list(ctx, "-test", "-deps", "./...")
	if err != nil {
		return nil, err
	}
	h := hasher{known: known, files: make(map[string][]byte)}
	add := func(path string, wanted int, race bool) error {
		p, program := known[path], known[path+".test"]
		if p.ImportPath == "" || program.ImportPath == "" {
			return fmt.Errorf("package %s has no tests", path)
		}
		s := suite{path: path, name: strings.TrimPrefix(strings.TrimPrefix(path, p.Module.Path), "/"), dir: p.Dir, wanted: wanted, race: race,
			starts: slices.Contains(program.Deps, p.Module.Path+builder)}
		if s.hash, err = h.hashOwn(p); err != nil {
			return err
		}
		s.built, err = h.hash(p, program, s.starts)
		s.rehash = func() (string, error) {
			return hasher{known: known, files: make(map[string][]byte)}.hash(p, program, s.starts)
		}
		all = append(all, s)
		return err
	}
	for _, path := range o.packages {
		concurrent, err := known[path].isConcurrent()
		if err == nil && concurrent {
			err = add(path, o.runs, o.race)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, path := range o.suites {
		if err := add(path, o.suiteRuns, false); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// printConcurrent prints the packages whose tests start goroutines or timers, in the order of the arguments.
func printConcurrent(ctx context.Context, packages []string, out io.Writer) error {
	known, err := list(ctx, packages...)
	if err != nil {
		return err
	}
	for _, path := range packages {
		concurrent, err := known[path].isConcurrent()
		if err != nil {
			return err
		}
		if concurrent {
			fmt.Fprintln(out, path)
		}
	}
	return nil
}

// list returns packages as go list describes them, by import path.
func list(ctx context.Context, args ...string) (map[string]listed, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	known := make(map[string]listed)
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var p listed
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return known, nil
		case err != nil:
			return nil, fmt.Errorf("read go list: %w", err)
		}
		known[p.ImportPath] = p
	}
}

// hasher computes what packages are built of. It reads each file once.
type hasher struct {
	known map[string]listed
	files map[string][]byte // hashes of packages of this module
}

// hashOwn returns a hash of a package, its tests and their data.
func (h hasher) hashOwn(p listed) (string, error) {
	sum := sha256.New()
	err := errors.Join(h.add(sum, p), addTests(sum, p))
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), err
}

// hash returns a hash of a package, its tests and their data, all that they depend on, and, if they start it, the
// program.
func (h hasher) hash(p, program listed, starts bool) (string, error) {
	deps := make(map[string]bool)
	for _, dep := range program.Deps {
		path, _, _ := strings.Cut(dep, " ") // of a variant that is compiled for these tests
		deps[path] = true
	}
	if starts {
		main := p.Module.Path + "/cmd/nftproxy"
		deps[main] = true
		for _, dep := range h.known[main].Deps {
			deps[dep] = true
		}
	}
	delete(deps, p.ImportPath+"_test")
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(deps)) {
		if err := h.add(sum, h.known[path]); err != nil {
			return "", err
		}
	}
	err := addTests(sum, p)
	return fmt.Sprintf("%x", sum.Sum(nil)[:8]), err
}

// addTests adds the files of tests and their data.
func addTests(sum io.Writer, p listed) error {
	tests := slices.Concat(p.TestGoFiles, p.XTestGoFiles, p.TestEmbedFiles, p.XTestEmbedFiles)
	if err := addFiles(sum, p.Dir, tests); err != nil {
		return err
	}
	err := fs.WalkDir(os.DirFS(p.Dir), "testdata", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return addFiles(sum, p.Dir, []string{name})
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// add adds a package that others import: its files if it is of this module, or else the version of its module.
func (h hasher) add(sum io.Writer, p listed) error {
	switch {
	case p.Standard || p.Module == nil: // go.mod has the version of Go
		return nil
	case !p.ours():
		fmt.Fprintln(sum, p.ImportPath, p.Module.Version)
		return nil
	}
	if h.files[p.ImportPath] == nil {
		one := sha256.New()
		if err := addFiles(one, p.Dir, slices.Concat(p.GoFiles, p.CgoFiles, p.SFiles, p.HFiles, p.CFiles, p.EmbedFiles)); err != nil {
			return err
		}
		h.files[p.ImportPath] = one.Sum(nil)
	}
	fmt.Fprintf(sum, "%s %x\n", p.ImportPath, h.files[p.ImportPath])
	return nil
}

func addFiles(sum io.Writer, dir string, names []string) error {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, name, len(text))
		sum.Write(text)
	}
	return nil
}

// concurrent are functions by which a package or its tests depend on how goroutines are scheduled or on time.
var concurrent = map[string][]string{
	"time":     {"Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
	"context":  {"WithTimeout", "WithDeadline", "AfterFunc"},
	"synctest": {"Test", "Run", "Wait"},
	"await":    {"Until", "Receive", "Pace", "Span"},
	"parallel": {"Ahead", "Spread", "SpreadOver"},
	"httptest": {"NewServer", "NewTLSServer", "NewUnstartedServer"},
}

// isConcurrent reports whether the sources or the tests of a package start goroutines or timers.
func (p listed) isConcurrent() (bool, error) {
	for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		found := false
		ast.Inspect(file, func(n ast.Node) bool {
			found = found || startsGoroutine(n)
			return !found
		})
		if found {
			return true, nil
		}
	}
	return false, nil
}

// startsGoroutine reports whether a node is a go statement, a call of a method Go or Parallel, or one of the functions
// in concurrent.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		on, _ := f.X.(*ast.Ident)
		return f.Sel.Name == "Go" || f.Sel.Name == "Parallel" || on != nil && slices.Contains(concurrent[on.Name], f.Sel.Name)
	}
	return false
}
