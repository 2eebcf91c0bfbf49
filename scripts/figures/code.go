package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Names of figures.
const (
	allLines       = "lines"
	linesOf        = "lines of " // and a directory
	oneWord        = "names of one word"
	oneWordPublic  = "names of one word, exported"
	functionFields = "fields of function type"
	programLines   = "lines of cmd/nftproxy and its imports"
	programModules = "modules of cmd/nftproxy"
	documentation  = "words of documentation"
)

// goWords are the names of one word that Go's own packages give to functions, in lower case.
var goWords = func() map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(`
		accept add all append check clear clone close collect compare contains convert copy count decode delete describe dial do done
		encode equal err error exit format get handle index init insert is join keys len less listen load lock log lookup main
		marshal max merge min new next notify open parse pop print printf println push read release remove reset run scan search
		send serve set sort split start stop store string sub swap sync trim unlock unmarshal unwrap values wait walk with wrap write`) {
		words[word] = true
	}
	return words
}()

var (
	lowerWord = regexp.MustCompile(`^[a-z0-9]+$`)
	upperWord = regexp.MustCompile(`^([A-Z][a-z0-9]*|[A-Z0-9]+)$`)
)

// code is what the product's files consist of.
type code struct {
	lines                                   map[string]int // by directory
	functions, private, public, funcsFields int
}

// readCode reads the product's files below the directories.
func readCode(directories ...string) (*code, error) {
	c := &code{lines: map[string]int{}}
	for _, directory := range directories {
		if err := filepath.WalkDir(directory, c.visit); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *code) visit(path string, entry fs.DirEntry, err error) error {
	switch {
	case err != nil:
		return err
	case entry.IsDir() && (entry.Name() == "testkit" || entry.Name() == "testdata"):
		return filepath.SkipDir
	case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	c.lines[filepath.Dir(path)] += bytes.Count(text, []byte("\n"))
	return c.addFile(path, text)
}

// addFile counts the file's functions and fields.
func (c *code) addFile(path string, text []byte) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			c.addFunction(node.Name.Name)
		case *ast.StructType:
			for _, field := range node.Fields.List {
				if _, is := field.Type.(*ast.FuncType); is {
					c.funcsFields += max(len(field.Names), 1)
				}
			}
		}
		return true
	})
	return nil
}

func (c *code) addFunction(name string) {
	c.functions++
	switch {
	case goWords[strings.ToLower(name)]:
	case lowerWord.MatchString(name):
		c.private++
	case upperWord.MatchString(name):
		c.public++
	}
}

func (c *code) figures() map[string]int {
	figures := map[string]int{oneWord: c.private, oneWordPublic: c.public, functionFields: c.funcsFields}
	for directory, lines := range c.lines {
		figures[linesOf+directory] = lines
		figures[allLines] += lines
	}
	return figures
}

// addProgram adds the figures of cmd/nftproxy and everything that it imports.
func addProgram(figures map[string]int, c *code) error {
	out, err := command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}} {{.ImportPath}}", "./cmd/nftproxy")
	if err != nil {
		return err
	}
	modules := map[string]bool{}
	for line := range strings.Lines(out) {
		module, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if module != "" {
			modules[module] = true
		}
		if directory, ours := strings.CutPrefix(path, "github.com/nftproxy/nftproxy/"); ours {
			figures[programLines] += c.lines[directory]
		}
	}
	figures[programModules] = len(modules)
	return nil
}

// generatedPages are written by programs.
var generatedPages = regexp.MustCompile(`^docs/(man|cli|api|parity|conformance|compatibility)`)

// addDocumentation adds the words of the pages that are written by hand.
func addDocumentation(figures map[string]int) error {
	out, err := command("git", "ls-files", "README.md", "docs/*.md")
	if err != nil {
		return err
	}
	for path := range strings.FieldsSeq(out) {
		if generatedPages.MatchString(path) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		figures[documentation] += len(bytes.Fields(text))
	}
	return nil
}

func command(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args...), " "), err)
	}
	return string(out), nil
}
