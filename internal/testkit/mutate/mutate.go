// Package mutate puts small mistakes into the source of Go packages, each of which a program can turn
// on: one build has all of them. The source on disk stays as it is.
package mutate

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Site is a place for a mistake.
type Site struct {
	Number int
	Place  string // file and function, and which of several alike it is
	Kind   string // what changes, in words
	Source string // the text that changes, on one line
}

// Package is the source of a package with all of its mistakes, which are turned off.
type Package struct {
	Sites []Site
	Files map[string]string // by the path of the original
}

const mutantPath = "github.com/nftproxy/nftproxy/internal/testkit/mutant"

// Instrument returns a package with mistakes numbered from first on, in the files that are chosen.
func Instrument(path string, first int, chosen func(file string) bool) (*Package, error) {
	dir, exports, err := list(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	files, err := parse(fset, dir)
	if err != nil {
		return nil, err
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	pkg, err := config.Check(path, fset, files, info)
	if err != nil {
		return nil, err
	}
	out := &Package{Files: make(map[string]string)}
	for _, f := range files {
		name := fset.File(f.Pos()).Name()
		if !chosen(filepath.Base(name)) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		v := &visitor{fset: fset, info: info, pkg: pkg, text: string(text), first: first + len(out.Sites), dir: filepath.Base(dir), imports: importNames(f)}
		v.file(f)
		out.Sites = append(out.Sites, v.sites...)
		if len(v.sites) > 0 {
			out.Files[name] = v.result(f)
		}
	}
	return out, nil
}

// list returns the directory of a package, and the files with export data of all that it imports.
func list(path string) (dir string, exports map[string]string, err error) {
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}|{{.Export}}|{{.Dir}}", path).Output()
	if err != nil {
		return "", nil, fmt.Errorf("go list %s: %w", path, err)
	}
	exports = make(map[string]string)
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		exports[fields[0]] = fields[1]
		if fields[0] == path {
			dir = fields[2]
		}
	}
	return dir, exports, nil
}

func parse(fset *token.FileSet, dir string) (files []*ast.File, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// importNames returns the names by which a file knows packages, by their paths.
func importNames(f *ast.File) map[string]string {
	out := make(map[string]string)
	for _, i := range f.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		if i.Name != nil {
			out[path] = i.Name.Name
		} else {
			out[path] = path[strings.LastIndexByte(path, '/')+1:]
		}
	}
	return out
}

// visitor collects the mistakes of a file as insertions into its text.
type visitor struct {
	fset     *token.FileSet
	info     *types.Info
	pkg      *types.Package
	text     string
	first    int
	dir      string
	imports  map[string]string
	sites    []Site
	inserts  []insert
	function string // that the visitor is in
	isTyped  bool   // the last type can be written in this file
}

type insert struct {
	at   int
	text string
	end  bool // behind what it surrounds
}

func (v *visitor) file(f *ast.File) {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && (fn.Name.Name != "String" && fn.Name.Name != "LogValue") {
			v.function = fn.Name.Name
			ast.Inspect(fn.Body, v.node)
		}
	}
}

func (v *visitor) node(n ast.Node) bool {
	if e, ok := n.(ast.Expr); ok && v.info.Types[e].Value != nil {
		return v.constant(e)
	}
	switch n := n.(type) {
	case *ast.IfStmt:
		v.negate(n.Cond)
	case *ast.BinaryExpr:
		if n.Op == token.LAND || n.Op == token.LOR {
			v.negate(n.X)
			v.negate(n.Y)
		}
	case *ast.BlockStmt:
		v.statements(n.List)
	case *ast.CaseClause:
		v.statements(n.Body)
	case *ast.CompositeLit:
		v.elements(n)
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.ArrayType:
		return false
	case *ast.KeyValueExpr:
		if v.info.Types[n.Key].Value != nil { // the index of an array is a constant
			ast.Inspect(n.Value, v.node)
			return false
		}
	}
	return true
}

func (v *visitor) offset(p token.Pos) int { return v.fset.Position(p).Offset }

func (v *visitor) add(n ast.Node, kind, before, after string) {
	source := strings.Join(strings.Fields(v.text[v.offset(n.Pos()):v.offset(n.End())]), " ")
	if runes := []rune(source); len(runes) > 60 {
		source = string(runes[:57]) + "..."
	}
	number := v.first + len(v.sites)
	place := fmt.Sprintf("%s/%s %s", v.dir, filepath.Base(v.fset.Position(n.Pos()).Filename), v.function)
	alike := 1
	for _, s := range v.sites {
		if s.Kind == kind && s.Source == source && (s.Place == place || strings.HasPrefix(s.Place, place+" #")) {
			alike++
		}
	}
	if alike > 1 {
		place += fmt.Sprintf(" #%d", alike)
	}
	v.sites = append(v.sites, Site{number, place, kind, source})
	v.inserts = append(v.inserts, insert{v.offset(n.Pos()), strings.ReplaceAll(before, "#", fmt.Sprint(number)), false}, insert{v.offset(n.End()), after, true})
}

// negate turns a condition round.
func (v *visitor) negate(cond ast.Expr) {
	if t := v.info.Types[cond]; t.Value == nil && t.Type != nil && types.Identical(t.Type, types.Typ[types.Bool]) {
		v.add(cond, "negated", "(mutant.On(#) != (", "))")
	}
}

// statements drops statements.
func (v *visitor) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if !isPanic(s) { // which may end a function that returns a value
				v.add(s, "dropped", "if !mutant.On(#) { ", " }")
			}
		case *ast.IncDecStmt:
			v.add(s, "dropped", "if !mutant.On(#) { ", " }")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				v.add(s, "dropped", "if !mutant.On(#) { ", " }")
			}
		}
	}
}

func isPanic(s *ast.ExprStmt) bool {
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "panic"
}

// elements drops elements of lists.
func (v *visitor) elements(lit *ast.CompositeLit) {
	t := v.info.Types[lit].Type
	if t == nil {
		return
	}
	if _, isSlice := t.Underlying().(*types.Slice); !isSlice || len(lit.Elts) == 0 {
		return
	}
	name := ""
	if lit.Type == nil {
		if name = v.typeName(t); !v.isTyped {
			return
		}
	}
	i := len(lit.Elts) / 2
	if _, isKeyed := lit.Elts[i].(*ast.KeyValueExpr); isKeyed {
		return
	}
	v.add(lit, fmt.Sprintf("without element %d", i), fmt.Sprintf("mutant.Without(#, %d, %s", i, name), ")")
}

// typeName returns a type as this file can write it, and sets isTyped if it can.
func (v *visitor) typeName(t types.Type) string {
	v.isTyped = true
	return types.TypeString(t, func(p *types.Package) string {
		if p == v.pkg {
			return ""
		}
		name, ok := v.imports[p.Path()]
		v.isTyped = v.isTyped && ok
		return name
	})
}

// constant adds one to a number.
func (v *visitor) constant(e ast.Expr) bool {
	t := v.info.Types[e]
	basic, isBasic := t.Type.Underlying().(*types.Basic)
	if !isBasic || basic.Info()&types.IsInteger == 0 || t.Value.Kind() != constant.Int {
		return false
	}
	name := v.typeName(types.Default(t.Type))
	if n, exact := constant.Int64Val(t.Value); !v.isTyped || !exact || n < 0 {
		return false
	}
	v.add(e, "one more", name+"(mutant.Add(#, int64(", ")))")
	return false
}

// result returns the text with all insertions.
func (v *visitor) result(f *ast.File) string {
	// Of insertions at one place, ends come first; what begins first surrounds the others.
	order := make([]int, len(v.inserts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := v.inserts[a], v.inserts[b]
		switch {
		case x.at != y.at:
			return x.at - y.at
		case x.end != y.end && x.end:
			return -1
		case x.end != y.end:
			return 1
		case x.end:
			return b - a
		}
		return a - b
	})
	var b strings.Builder
	at := 0
	for _, i := range order {
		b.WriteString(v.text[at:v.inserts[i].at] + v.inserts[i].text)
		at = v.inserts[i].at
	}
	b.WriteString(v.text[at:])
	name := v.offset(f.Name.End())
	text := b.String()
	return text[:name] + "\n\nimport \"" + mutantPath + "\"\n" + text[name:]
}
