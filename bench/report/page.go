package report

import (
	"fmt"
	"maps"
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
