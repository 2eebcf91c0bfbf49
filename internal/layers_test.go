package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/nftproxy/nftproxy/internal/"

// A wall is what packages must not reach, and why.
type wall struct {
	why      string
	packages []string // nil: all but except, with the packages below these
	except   []string
	not      []string // prefixes of import paths
	but      []string // import paths that do not count
	itself   bool     // only what packages import themselves counts
}

// otherModules stands for each module but ours.
const otherModules = "other modules"

// walls says what packages must not reach, directly or not. Imports point one way because
// the compiler rejects cycles; these are the ways that would be wrong.
var walls = []wall{
	{
		why: "decisions are pure: whatever they need of the system, the caller passes in",
		packages: []string{"model", "nft", "placement", "render", "plan", "served", "setting", "changes", "explain", "api", "show", "health", "serve", "fair", "web",
			"logwriter", "atomicfile", "parallel", "suggest", "terminal", "words"},
		not: []string{otherModules},
	},
	{
		why:      "what everything imports knows nothing of the project but its limits",
		packages: []string{"model", "atomicfile", "parallel", "suggest", "terminal", "netlinkio", "logwriter", "serve", "fair", "web", "words"},
		not:      []string{module},
		but:      []string{module + "budget", module + "fair", module + "parallel", module + "words"},
	},
	{
		why:      "a proxy of connections knows sockets and decisions, and neither rules nor who looks",
		packages: []string{"tcpproxy"},
		not:      []string{module, otherModules},
		but: []string{module + "tcpproxy", module + "descriptors", module + "fair", module + "model", module + "budget", module + "parallel", module + "words",
			"golang.org/x/sys/unix"},
	},
	{
		why:      "limits depend on nothing",
		packages: []string{"budget"},
		not:      []string{module, otherModules},
	},
	{
		why:    "only the ways in and out of a cluster know Kubernetes' types",
		except: []string{"source", "config", "events", "migrate", "kubectl", "fleet", "metrics", "daemon", "feature", "footprint", "cli", "command", "testkit"},
		not:    []string{"k8s.io/"},
	},
	{
		why: "only what acts on the kernel, or reports on what it holds, reaches it",
		except: []string{"kernel", "apply", "agent", "preflight", "machine", "report", "metrics", "daemon", "takeover", "trace",
			"fastpath", "footprint", "feature", "nftconn", "command", "testkit"},
		not: []string{module + "kernel", "github.com/google/nftables/expr"},
	},
	{
		why:      "the way to the kernel does not depend on the ways in, nor on who looks",
		packages: []string{"kernel", "apply", "agent", "preflight", "conntrack", "fastpath", "host", "takeover", "xtables"},
		not:      []string{module + "source", module + "config", module + "report", module + "api", module + "changes", module + "daemon"},
	},
	{
		why:      "features are no part of the mission",
		packages: []string{"model", "placement", "render", "plan", "apply", "agent", "kernel", "nft", "source", "served", "report", "explain", "changes", "machine", "config"},
		not:      []string{module + "feature"},
	},
	{
		why:      "a proof that shares code with what it proves proves nothing",
		packages: []string{"prove", "bytecode"},
		not:      []string{module, "github.com/google/nftables"},
		but: []string{module + "bytecode", module + "model", module + "netlinkio", module + "terminal",
			module + "budget", module + "fair", module + "parallel", module + "words"},
	},
	{
		why:      "readers of a daemon know its documents, and nothing of the node behind them",
		packages: []string{"api", "show", "top"},
		not:      []string{module},
		but:      []string{module + "api", module + "model", module + "parallel", module + "budget", module + "setting", module + "suggest", module + "terminal", module + "words"},
	},
	{
		why:      "what runs on the machine of an operator runs on each operating system: it reaches nothing of Linux alone",
		packages: []string{"fleet", "fleet/peers", "kubectl", "conntest", "config", "bundle", "changes", "source/cluster"},
		not: []string{module + "host", module + "netlinkio", module + "netspace", module + "conntrack", module + "kernel", module + "conntest/dial",
			"github.com/vishvananda/", "github.com/mdlayher/", "github.com/google/nftables"},
	},
	{
		why:    "the engine and features know facts, and nothing of the documents that are made of them",
		except: []string{"api", "report", "show", "top", "fleet", "daemon", "control/client", "cli/common", "command", "testkit"},
		not:    []string{module + "api"},
		itself: true,
	},
	{
		why:      "documents are made of facts that features hand over: report knows no feature",
		packages: []string{"report"},
		not:      []string{module + "feature", module + "control", module + "drain", module + "traffic", module + "takeover"},
	},
	{
		why:    "no action depends on what people and programs read",
		except: []string{"report", "metrics", "daemon", "command", "testkit"},
		not:    []string{module + "report"},
	},
	{
		why:      "the codec is bytes: it opens no socket and knows no source",
		packages: []string{"kernel/codec"},
		not:      []string{"k8s.io/", module + "host", module + "serve", module + "source"},
	},
	{
		why:      "objects are converted without a client, a watch or a socket",
		packages: []string{"source", "source/healthcheck", "source/convert", "source/balance"},
		not:      []string{"k8s.io/client-go", module + "source/files", module + "kernel", module + "host"},
	},
	{
		why:      "a machine that reads files needs no client of an API server",
		packages: []string{"source/files"},
		not:      []string{"k8s.io/client-go", module + "source/cluster", module + "kernel", module + "host"},
	},
	{
		why:      "an API server is followed without files",
		packages: []string{"source/cluster"},
		not:      []string{module + "source/files", module + "source/balance"},
	},
	{
		why:      "a parser of files that people write brings one library for YAML and one for JSON",
		packages: []string{"manifest", "drain"},
		not:      []string{"k8s.io/", "golang.org/", "sigs.k8s.io/yaml"},
	},
}

func TestWalls(t *testing.T) {
	all := packagesOf(t, module+"...")
	for _, w := range walls {
		t.Run(w.why, func(t *testing.T) {
			behind := w.packages
			if behind == nil {
				for _, p := range all {
					if !slices.ContainsFunc(w.except, func(e string) bool { return p == e || strings.HasPrefix(p, e+"/") }) {
						behind = append(behind, p)
					}
				}
			}
			for _, p := range slices.Concat(behind, w.except) {
				if !slices.ContainsFunc(all, func(a string) bool { return a == p || strings.HasPrefix(a, p+"/") }) {
					t.Errorf("there is no package %s: take it out of this wall", p)
				}
			}
			for _, p := range behind {
				w.check(t, p)
			}
		})
	}
}

// Packages of the two programs.
var (
	nodeProgram   = strings.TrimSuffix(module, "internal/") + "cmd/nftproxy"
	laptopProgram = strings.TrimSuffix(module, "internal/") + "cmd/kubectl-nftproxy"
)

// TestPrograms: what only operators need is not in the program of nodes: ways to all nodes of a cluster, and streams
// through an API server.
func TestPrograms(t *testing.T) {
	for _, dep := range dependencies(t, nodeProgram) {
		for _, not := range []string{module + "fleet", "k8s.io/cli-runtime", "k8s.io/client-go/tools/portforward", "k8s.io/client-go/transport/spdy",
			"k8s.io/client-go/transport/websocket", "k8s.io/streaming", "github.com/gorilla/websocket", "github.com/moby/spdystream"} {
			if dep == not || strings.HasPrefix(dep, not+"/") {
				t.Errorf("the program of nodes links %s", dep)
			}
		}
	}
}

// TestCommandGroups: a group of commands does not import another one, so that a test of a command links what that
// needs. What groups share is in package command.
func TestCommandGroups(t *testing.T) {
	for _, p := range packagesOf(t, module+"command/...") {
		for _, dep := range dependencies(t, module+p) {
			if strings.HasPrefix(dep, module+"command/") && dep != module+p {
				t.Errorf("%s imports %s", p, dep)
			}
		}
	}
}

// TestOperatingSystems: on no operating system does the program of operators reach what is of Linux alone.
func TestOperatingSystems(t *testing.T) {
	for _, system := range []string{"linux", "darwin", "windows"} {
		cmd := exec.Command("go", "list", "-deps", laptopProgram)
		cmd.Env = append(os.Environ(), "GOOS="+system)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list for %s: %v", system, err)
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			for _, not := range []string{module + "host", module + "netlinkio", module + "netspace", module + "conntrack", module + "kernel", module + "conntest/dial",
				"github.com/vishvananda/", "github.com/mdlayher/", "github.com/google/nftables"} {
				if dep == not || strings.HasPrefix(dep, strings.TrimSuffix(not, "/")+"/") {
					t.Errorf("on %s it reaches %s", system, dep)
				}
			}
		}
	}
}

// TestTestkit: the programs use all packages below internal, but those of testkit, and these
// are for tests alone.
func TestTestkit(t *testing.T) {
	program := slices.Concat(dependencies(t, nodeProgram), dependencies(t, laptopProgram))
	for _, p := range packagesOf(t, module+"...") {
		helper := strings.HasPrefix(p, "testkit/")
		switch used := slices.Contains(program, module+p); {
		case used && helper:
			t.Errorf("a program imports %s, which is for tests", p)
		case !used && !helper:
			t.Errorf("no program imports %s: move it into testkit, if tests do", p)
		}
	}
}

func packagesOf(t *testing.T, pattern string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", pattern).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []string
	for _, path := range strings.Fields(string(out)) {
		if p, ok := strings.CutPrefix(path, module); ok {
			packages = append(packages, p)
		}
	}
	return packages
}

// check reports what a package reaches through the wall.
func (w *wall) check(t *testing.T, pkg string) {
	t.Helper()
	reached := dependencies(t, module+pkg)
	if w.itself {
		reached = importsOf(t, pkg)
	}
	for _, dep := range reached {
		if dep == module+pkg || slices.Contains(w.but, dep) {
			continue
		}
		foreign := !strings.HasPrefix(dep, module)
		if slices.ContainsFunc(w.not, func(p string) bool { return strings.HasPrefix(dep, p) || foreign && p == otherModules }) {
			t.Errorf("%s reaches %s", pkg, dep)
		}
	}
}

// importsOf returns what a package of internal imports itself.
func importsOf(t *testing.T, pkg string) (out []string) {
	for _, f := range parsed(t, pkg) {
		for _, i := range f.Imports {
			out = append(out, strings.Trim(i.Path.Value, `"`))
		}
	}
	return out
}

// dependencies returns what a package of internal or cmd imports outside of the standard library, directly or not, and
// the package itself.
func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	all, err := imports()
	if err != nil {
		t.Fatal(err)
	}
	return all[pkg]
}

// imports returns the dependencies of all packages by one command.
var imports = sync.OnceValues(func() (map[string][]string, error) {
	out, err := exec.Command("go", "list", "-deps", "-f", `{{if not .Standard}}{{.ImportPath}} {{join .Deps " "}}{{end}}`, "./...", "../cmd/...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		if deps := strings.Fields(line); len(deps) > 0 {
			all[deps[0]] = deps
		}
	}
	for pkg, deps := range all {
		all[pkg] = slices.DeleteFunc(deps, func(d string) bool { return all[d] == nil })
	}
	return all, nil
})

// TestProofKnowsNoDecision: of package model, the proof uses types and constants, and methods that
// return what an object says. So it repeats no decision that it proves.
func TestProofKnowsNoDecision(t *testing.T) {
	functions, methods := declared(t, "model")
	plain := []string{"Node", "Zone", "ForNodes", "ForZones", "IsEcho", "String", "Contains"} // the last one also of netip
	own, ownMethods := declared(t, "prove")
	_, interpreters := declared(t, "bytecode")
	known := slices.Concat(plain, own, ownMethods, interpreters)
	for _, f := range parsed(t, "prove") {
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if of, isName := s.X.(*ast.Ident); isName && of.Name == "model" && slices.Contains(functions, s.Sel.Name) {
					t.Errorf("prove uses model.%s", s.Sel.Name)
				}
			}
			if c, ok := n.(*ast.CallExpr); ok {
				s, isMethod := c.Fun.(*ast.SelectorExpr)
				if isMethod && slices.Contains(methods, s.Sel.Name) && !slices.Contains(known, s.Sel.Name) && !isPackage(s.X) {
					t.Errorf("prove calls a method that package model has: %s", s.Sel.Name)
				}
			}
			return true
		})
	}
}

// isPackage reports whether an expression names one of the packages that the proof imports.
func isPackage(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && slices.Contains([]string{"model", "bytecode", "netip", "slices", "strings", "cmp", "fmt", "io", "math", "terminal"}, name.Name)
}

func parsed(t *testing.T, pkg string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(pkg + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// declared returns the names of the functions and of the methods of a package.
func declared(t *testing.T, pkg string) (functions, methods []string) {
	t.Helper()
	for _, f := range parsed(t, pkg) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				functions = append(functions, fn.Name.Name)
			} else if ok {
				methods = append(methods, fn.Name.Name)
			}
		}
	}
	return functions, methods
}
