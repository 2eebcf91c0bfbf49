package behaviour

import (
	"cmp"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestEveryStatementIsNamedByATest fails with a list of statements to test or
// to add to the reference.
func TestEveryStatementIsNamedByATest(t *testing.T) {
	r := readReference(t)
	named := namedByTests(t)
	var missing []string
	for _, n := range slices.SortedFunc(maps.Keys(r.statements), compareNumbers) {
		reason, exempt := r.untested[n]
		switch files := named[n]; {
		case len(files) == 0 && !exempt:
			missing = append(missing, n)
		case len(files) > 0 && exempt:
			t.Errorf("%s is listed under \"Not tested\" (%s), but %s names it", n, reason, files[0])
		}
	}
	if len(missing) > 0 {
		t.Errorf("%d statements of %s are named by no test: %s", len(missing), referencePath, strings.Join(missing, " "))
	}
	for _, n := range slices.SortedFunc(maps.Keys(named), compareNumbers) {
		if _, ok := r.statements[n]; !ok {
			t.Errorf("%s: not in %s, but named in %s", n, referencePath, strings.Join(named[n], ", "))
		}
	}
	for n := range r.untested {
		if _, ok := r.statements[n]; !ok {
			t.Errorf("%s is listed under \"Not tested\" and is no statement", n)
		}
	}
}

// namedByTests returns the numbers that tests and golden cases name, with the
// files that do.
func namedByTests(t *testing.T) map[string][]string {
	t.Helper()
	named := make(map[string][]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		var texts []string
		switch {
		case d.Name() == "coverage_test.go": // names numbers as examples
		case strings.HasSuffix(path, "_test.go"):
			texts, err = goTexts(path)
		case strings.HasSuffix(path, ".txtar"):
			texts, err = txtarTexts(path)
		}
		for _, text := range texts {
			for _, n := range numbersIn(text) {
				if files := named[n]; !slices.Contains(files, path) {
					named[n] = append(files, path)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return named
}

var (
	// leading matches a test name: a number, then words.
	leading = regexp.MustCompile(`^(table )?` + sections + `[.-]([0-9]{1,2}|[A-Z])[ ,]`)
	// remark matches numbers in parentheses, as messages have them.
	remark = regexp.MustCompile(`\((table )?` + sections + `[.-]([0-9]{1,2}|[A-Z])(,[^()]*)?\)`)
)

// goTexts returns the comments of a Go file, and what its strings name: those
// that begin with a number, as names of tests do, and remarks in others.
func goTexts(path string) ([]string, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, group := range parsed.Comments {
		texts = append(texts, group.Text())
	}
	var s scanner.Scanner
	s.Init(files.AddFile(path, -1, len(src)), src, nil, 0)
	for {
		_, kind, literal := s.Scan()
		if kind == token.EOF {
			return texts, nil
		}
		if kind != token.STRING {
			continue
		}
		text, err := strconv.Unquote(literal)
		switch {
		case err != nil:
		case leading.MatchString(text):
			texts = append(texts, text)
		default:
			texts = append(texts, remark.FindAllString(text, -1)...)
		}
	}
}

// txtarTexts returns the description of a case and the titles of its sections.
func txtarTexts(path string) ([]string, error) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		return nil, err
	}
	texts := []string{string(a.Comment)}
	for _, f := range a.Files {
		_, title, _ := strings.Cut(f.Name, ":")
		texts = append(texts, title)
	}
	return texts, nil
}

var (
	number = regexp.MustCompile(`[0-9A-Za-z.:/%-]+`)
	whole  = regexp.MustCompile(`^` + sections + `(\.[1-9][0-9]?|-[A-Z])$`)
	// Words before a number that make it something else.
	version = regexp.MustCompile(`(?i)(kernels?|linux|nft|go|version)\s+$`)
	// Words after it that do.
	unit = regexp.MustCompile(`^\s*((s|ms|µs|ns|MB|GB|seconds?|times|x)\b|%)`)
)

// numbersIn returns the numbers of statements that a text names: words such as
// 4.23 and 3-A that are not part of an address and not a version or a quantity.
func numbersIn(text string) []string {
	var out []string
	for _, at := range number.FindAllStringIndex(text, -1) {
		word := strings.TrimRight(text[at[0]:at[1]], ".:")
		if whole.MatchString(word) && !version.MatchString(text[:at[0]]) && !unit.MatchString(text[at[1]:]) {
			out = append(out, word)
		}
	}
	return out
}

func TestNumbersIn(t *testing.T) {
	for text, want := range map[string]string{
		"4.23 an undefined port":                      "4.23",
		"3.10 to 3.13; see table 3-A.":                "3.10 3.13 3-A",
		"(1.2, 1.3), and 12.42":                       "1.2 1.3 12.42",
		"the text of 4.19. Then 8.4: more":            "4.19 8.4",
		"10.0.0.1:80, 1.2.3.4, 1.2.3.4/8, 5.6/16":     "",
		"before kernel 6.2 and Linux 5.13, nft 1.1.3": "",
		"1.5 s, 2.5ms, 3.5 times, 7.5%, 8.5 %, 9.5 %": "",
		"9.12, 15.1 and 12.61":                        "9.12 15.1 12.61",
		"v1.2, 1.20b, 20.1, 1.100, 0.5, 1.0, P12":     "",
	} {
		if got := strings.Join(numbersIn(text), " "); got != want {
			t.Errorf("numbers in %q: %q, want %q", text, got, want)
		}
	}
}

func compareNumbers(a, b string) int {
	sectionA, restA := split(a)
	sectionB, restB := split(b)
	return cmp.Or(cmp.Compare(sectionA, sectionB), cmp.Compare(atoi(restA), atoi(restB)), cmp.Compare(a, b))
}

// split returns the section of a number and what follows the dot or dash.
func split(number string) (section int, rest string) {
	i := strings.IndexAny(number, ".-")
	return atoi(number[:i]), number[i+1:]
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // a letter is 0: tables come first
	return n
}
