package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// begin is the mark before a table, such as <!-- bench:times -->; after the
// table stands endMark.
var begin = regexp.MustCompile(`(?m)^<!-- bench:([a-z-]+) -->\n`)

const endMark = "<!-- /bench -->"

// Rewrite returns a page of Markdown in which the text between marks is
// replaced by the tables of these names. Where the table is empty, the text
// stays.
func Rewrite(page string, tables map[string]string) (string, error) {
	var out strings.Builder
	for {
		mark := begin.FindStringSubmatchIndex(page)
		if mark == nil {
			return out.String() + page, nil
		}
		name := page[mark[2]:mark[3]]
		table, ok := tables[name]
		if !ok {
			return "", fmt.Errorf("there is no table %q: use one of %s", name, strings.Join(slices.Sorted(maps.Keys(tables)), ", "))
		}
		old, rest, ended := strings.Cut(page[mark[1]:], endMark)
		if !ended || begin.MatchString(old) {
			return "", fmt.Errorf("table %q has no end: write %s after it", name, endMark)
		}
		out.WriteString(page[:mark[1]])
		if table == "" {
			out.WriteString(old)
		} else {
			out.WriteString("\n" + table + "\n")
		}
		out.WriteString(endMark)
		page = rest
	}
}

// RewriteFile rewrites the tables of a page, unless it has them already.
func RewriteFile(path string, tables map[string]string) error {
	_, err := rewriteFile(path, func(page string) (string, error) { return Rewrite(page, tables) })
	return err
}

// RewriteFile rewrites a page, unless it has all already, and returns the earlier figures
// that its list does not have.
func (p *Pages) RewriteFile(path string) ([]Earlier, error) {
	text, err := rewriteFile(path, p.Rewrite)
	return p.Unaccepted(text), err
}

// rewriteFile returns the new content of a file.
func rewriteFile(path string, rewrite func(string) (string, error)) (string, error) {
	page, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	text, err := rewrite(string(page))
	if err != nil {
		return "", fmt.Errorf("rewrite %s: %w", path, err)
	}
	if text != string(page) {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	return text, err
}

// Merge puts records into a file of records by name, which is JSON, in the place of
// those of the same names, and returns all. It makes the file if there is none.
func Merge[T any](path string, records map[string]T) (map[string]T, error) {
	all := map[string]T{}
	old, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(old, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	maps.Copy(all, records)
	content, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return all, os.WriteFile(path, append(content, '\n'), 0o644)
}
