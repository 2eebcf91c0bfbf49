package report

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/nftproxy/nftproxy/bench/results"
)

// Tree is what figures have to be of.
type Tree struct {
	Layout     string // of the rules of nftproxy
	Kubernetes string // version, without "v"
}

// Earlier are figures of a table that are of another version than the tree.
type Earlier struct {
	Table string
	Origin
}

// Earlier returns the tables with such figures, by name.
func (t Tree) Earlier(files []*results.File) []Earlier { return t.earlier(Origins(files)) }

// earlier returns them from the origins of all tables.
func (t Tree) earlier(all map[string][]Origin) (out []Earlier) {
	for name, origins := range all {
		for _, o := range origins {
			rules := !withoutRules[name] && o.Layout != t.Layout
			if rules || o.Kubernetes != "" && o.Kubernetes != t.Kubernetes || !commits.MatchString(o.Version) {
				out = append(out, Earlier{name, o})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Earlier) int { return strings.Compare(a.Table, b.Table) })
	return out
}

// commits matches versions that name a commit with all that was measured: neither
// "(devel)" nor "v1.2.3-dirty".
var commits = regexp.MustCompile(`^(v\d+\.\d+\.\d+\S*-g)?[0-9a-f]{7,40}$|^v\d+\.\d+\.\d+$`)

// withoutRules are the tables whose figures do not depend on rules.
var withoutRules = map[string]bool{"watchers": true, "watchers-compared": true, "watchers-memory": true, "program": true, "init": true}

// earlierMark is the list of accepted earlier figures of a page, which people read as
// the exceptions.
const earlierMark = "earlier"

// Acceptance lets a page have earlier figures of some tables.
type Acceptance struct {
	Tables []string
	Date   string // of the decision
	Why    string
}

// Pages are what pages of Markdown have to have.
type Pages struct {
	Files  []*results.File // not changed after the first call of a method
	Tree   Tree
	Accept Acceptance

	once   sync.Once // which computes what all pages share
	tables map[string]string
	before []Earlier
}

// prepare computes all tables, each with a line that says where it comes from, and which of them are earlier figures.
func (p *Pages) prepare() {
	p.once.Do(func() {
		origins := Origins(p.Files)
		p.tables, p.before = Tables(p.Files), p.Tree.earlier(origins)
		for name, from := range origins {
			if p.tables[name] != "" {
				p.tables[name] += "\n" + caption(from) + "\n"
			}
		}
	})
}

// key are the cells of a list that identify figures.
func (e *Earlier) key() []string {
	return []string{"`" + e.Table + "`", e.Date, e.Version, e.Layout, e.Kubernetes}
}

var earlierHead = []string{"table", "measured", "nftproxy", "rules", "Kubernetes", "accepted", "why not again"}

// none replaces a list without rows.
const none = "None.\n"

// list returns the rows of a page's list that are about earlier figures of that page. It
// drops those that were measured again, and adds those that are accepted now.
func (p *Pages) list(page string) [][]string {
	var rows [][]string
	for _, e := range p.earlier(page) {
		key := e.key()
		old := slices.IndexFunc(rowsOf(page), func(r []string) bool { return slices.Equal(r[:len(key)], key) })
		switch {
		case old >= 0:
			rows = append(rows, rowsOf(page)[old])
		case slices.Contains(p.Accept.Tables, e.Table):
			rows = append(rows, append(key, p.Accept.Date, p.Accept.Why))
		}
	}
	return rows
}

// earlier returns the earlier figures on a page.
func (p *Pages) earlier(page string) []Earlier {
	p.prepare()
	return slices.DeleteFunc(slices.Clone(p.before), func(e Earlier) bool {
		return !strings.Contains(page, "<!-- bench:"+e.Table+" -->\n")
	})
}

// Unaccepted returns the earlier figures of a page that its list does not have.
func (p *Pages) Unaccepted(page string) (out []Earlier) {
	rows := rowsOf(page)
	for _, e := range p.earlier(page) {
		key := e.key()
		if !slices.ContainsFunc(rows, func(r []string) bool { return slices.Equal(r[:len(key)], key) }) {
			out = append(out, e)
		}
	}
	return out
}

// rowsOf reads the list of a page.
func rowsOf(page string) (rows [][]string) {
	_, list, _ := strings.Cut(page, "<!-- bench:"+earlierMark+" -->\n")
	list, _, _ = strings.Cut(list, endMark)
	for line := range strings.Lines(list) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != len(earlierHead) || !strings.Contains(cells[0], "`") {
			continue // the head, or text
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// Rewrite returns a page with its tables.
func (p *Pages) Rewrite(page string) (string, error) { return Rewrite(page, p.Tables(page)) }

// Tables returns all tables for a page, and the page's list. One for which there are no results is empty.
func (p *Pages) Tables(page string) map[string]string {
	p.prepare()
	tables := maps.Clone(p.tables)
	tables[earlierMark] = none
	if rows := p.list(page); len(rows) > 0 {
		tables[earlierMark] = (&grid{head: earlierHead, rows: rows}).markdown()
	}
	return tables
}

// String says what to measure again.
func (e Earlier) String() string {
	return fmt.Sprintf("the table %q is of nftproxy %s, rules %s, Kubernetes %q", e.Table, e.Version, e.Layout, e.Kubernetes)
}
