package api_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

var update = flag.Bool("update", false, "add new fields to docs/api.md")

const page = "../../docs/api.md"

// documents are the answers of pages and commands.
var documents = []any{api.Status{}, api.Description{}, api.Serving{}, api.Sample{}, api.Drains{}, api.Basis{}, api.DrainResult{}, api.Controlled{}, api.Control{}, api.Observed{}, api.Comparison{}}

// TestPage: 11.26, docs/api.md lists the fields that the documents have. With -update it adds
// those that are new. A field of a version stays, with its type.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin fields -->\n", "<!-- end fields -->"
	head, rest, ok := strings.Cut(string(text), begin)
	before, tail, closed := strings.Cut(rest, end)
	if !ok || !closed || !strings.Contains(head, api.CurrentVersion) {
		t.Fatalf("%s has no place for the fields of %s", page, api.CurrentVersion)
	}
	fields := newFieldLister(t)
	for _, d := range documents {
		fields.list(reflect.TypeOf(d))
	}
	after := fields.b.String()
	for _, row := range rows(before) {
		if !slices.Contains(rows(after), row) {
			t.Errorf("%s is gone or has another type: keep it, or begin another version", row)
		}
	}
	switch want := head + begin + "\n" + after + end + tail; {
	case *update && !t.Failed():
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	case want != string(text):
		t.Errorf("%s lists other fields than there are: run go test ./internal/api -update", page)
	}
}

// rows returns the fields of a listing with their types, each after its section.
func rows(listing string) (out []string) {
	section := ""
	for line := range strings.Lines(listing) {
		if name, ok := strings.CutPrefix(line, "### "); ok {
			section = strings.TrimSpace(name)
		}
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") && len(cells) == 3 {
			out = append(out, section+": "+cells[0]+" | "+cells[1])
		}
	}
	return out
}

// fieldLister lists the fields of types, and of the types of their fields.
type fieldLister struct {
	b     strings.Builder
	about map[string]string // by type, and by type and Go name of a field
	seen  map[reflect.Type]bool
}

func newFieldLister(t *testing.T) *fieldLister {
	t.Helper()
	l := &fieldLister{about: make(map[string]string), seen: make(map[reflect.Type]bool)}
	for _, dir := range []string{"../model", "../setting", "."} {
		l.read(t, dir)
	}
	return l
}

// read reads the comments of the types in a package.
func (l *fieldLister) read(t *testing.T, dir string) {
	t.Helper()
	paths, err := filepath.Glob(dir + "/*.go")
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		file, failed := parser.ParseFile(set, path, nil, parser.ParseComments)
		files, err = append(files, file), errors.Join(err, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := doc.NewFromFiles(set, files, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range parsed.Types {
		l.about[typ.Name] = typ.Doc
		fields, ok := typ.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range fields.Fields.List {
			text := f.Doc.Text()
			if text == "" {
				text = f.Comment.Text()
			}
			for _, name := range f.Names {
				l.about[typ.Name+"."+name.Name] = text
			}
			if embedded, ok := f.Type.(*ast.Ident); ok && len(f.Names) == 0 {
				l.about[typ.Name+"."+embedded.Name] = text
			}
		}
	}
}

// list writes the section of a struct, then the sections of the structs that it has.
func (l *fieldLister) list(t reflect.Type) {
	if l.seen[t] {
		return
	}
	l.seen[t] = true
	fmt.Fprintf(&l.b, "### %s\n\n%s\n\n| field | type | |\n|---|---|---|\n", titleOf(t), plain(cmp.Or(l.about[titleOf(t)], strings.ReplaceAll(l.about[t.Name()], t.Name(), titleOf(t)))))
	var others []reflect.Type
	l.rows(t, &others)
	l.b.WriteString("\n")
	for _, o := range others {
		l.list(o)
	}
}

// rows writes the fields of a struct and of embedded ones.
func (l *fieldLister) rows(t reflect.Type, others *[]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported():
			continue
		case f.Anonymous && name == "":
			l.rows(f.Type, others)
			continue
		}
		of := typeText(f.Type, others)
		if options != "" {
			of += ", may be absent"
		}
		fmt.Fprintf(&l.b, "| `%s` | %s | %s |\n", name, of, plain(l.about[t.Name()+"."+f.Name]))
	}
}

// typeText returns the type of a field in JSON, and adds the structs that it has to others.
func typeText(t reflect.Type, others *[]reflect.Type) string {
	_, text := reflect.New(t).Interface().(interface{ UnmarshalText([]byte) error })
	switch {
	case t.Name() == "Time":
		return "time"
	case t == reflect.TypeFor[api.Version](), t == reflect.TypeFor[api.RequestVersion](), text:
		return "string"
	case t == reflect.TypeFor[json.RawMessage]():
		return "any"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeText(t.Elem(), others)
	case reflect.Slice:
		return "list of " + typeText(t.Elem(), others)
	case reflect.Map:
		return "map of " + typeText(t.Elem(), others)
	case reflect.Struct:
		*others = append(*others, t)
		return fmt.Sprintf("[%s](#%s)", titleOf(t), strings.ToLower(titleOf(t)))
	case reflect.String, reflect.Bool:
		return t.Kind().String()
	}
	return "number"
}

// titleOf returns the name of a struct in documents.
func titleOf(t reflect.Type) string {
	switch t { // of package model, where they have another name
	case reflect.TypeFor[model.Notice]():
		return "Problem"
	case reflect.TypeFor[model.DrainEntry]():
		return "Drained"
	case reflect.TypeFor[model.NamedAddress]():
		return "ResolvedAddress"
	}
	return t.Name()
}

// plain returns a comment in one line, without links of Go.
func plain(comment string) string {
	text := strings.Join(strings.Fields(comment), " ")
	return strings.NewReplacer("[", "", "]", "", "|", "\\|").Replace(text)
}

// TestVersion: 11.26, each document has its version, and one of another version is not read.
func TestVersion(t *testing.T) {
	for _, d := range documents {
		text, err := json.Marshal(d)
		if err != nil || !bytes.HasPrefix(text, []byte(`{"apiVersion":"`+api.CurrentVersion+`",`)) {
			t.Errorf("%T: %v, %s", d, err, text)
		}
		for version, fails := range map[string]bool{`"apiVersion":"nftproxy.dev/v1"`: true, `"apiVersion":"` + api.CurrentVersion + `"`: false, "": false} {
			err := json.Unmarshal([]byte("{"+version+"}"), reflect.New(reflect.TypeOf(d)).Interface())
			_, isRequest := d.(api.Control) // the same in both versions
			if (err != nil) != (fails && !isRequest) {
				t.Errorf("%T of version %q: %v", d, version, err)
			}
		}
	}
}
