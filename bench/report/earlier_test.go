package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// measured returns a file with a start of kube-proxy and one of nftproxy.
func measured(version, layout, kubernetes string) *results.File {
	start := func(p results.Program, d time.Duration) results.Record {
		return results.Record{Program: p, Services: 1000, Endpoints: 4, Operation: results.ColdStart, From: results.FromProcess, Seconds: took(d)}
	}
	return &results.File{
		Machine: results.Machine{CPU: "Fast 1"}, Date: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), Layout: layout, Load: 1.234,
		Versions: map[string]string{"nftproxy": version, "kube-proxy": kubernetes},
		Records:  []results.Record{start(results.KubeProxy, 3*time.Second), start(results.Nftproxy, time.Second)},
	}
}

// TestEarlier: figures of other rules, of another Kubernetes, or of no commit are earlier
// ones. A file whose figures others replace does not count.
func TestEarlier(t *testing.T) {
	tree := report.Tree{Layout: "aaaa", Kubernetes: "1.37.2"}
	today := measured("0123abc", "aaaa", "v1.37.2")
	for _, c := range []struct {
		name  string
		files []*results.File
		want  int
	}{
		{"today's", []*results.File{today}, 0},
		{"a release", []*results.File{measured("v0.1.0", "aaaa", "v1.37.2")}, 0},
		{"after a release", []*results.File{measured("v0.1.0-7-g0123abc", "aaaa", "v1.37.2")}, 0},
		{"other rules", []*results.File{measured("0123abc", "bbbb", "v1.37.2")}, 1},
		{"unknown rules", []*results.File{measured("0123abc", "", "v1.37.2")}, 1},
		{"another Kubernetes", []*results.File{measured("0123abc", "aaaa", "v1.36.3")}, 1},
		{"no commit", []*results.File{measured("(devel)", "aaaa", "v1.37.2")}, 1},
		{"changed files", []*results.File{measured("0123abc-dirty", "aaaa", "v1.37.2")}, 1},
		{"replaced", []*results.File{measured("0123abc", "bbbb", "v1.36.3"), today}, 0},
	} {
		if got := tree.Earlier(c.files); len(got) != c.want || c.want > 0 && got[0].Table != "compare" {
			t.Errorf("%s: got %v, want %d", c.name, got, c.want)
		}
	}
}

const comparePage = "<!-- bench:compare -->\n<!-- /bench -->\ntext\n<!-- bench:earlier -->\n<!-- /bench -->\n"

// TestAcceptance: a page says where each table comes from, and lists earlier figures that
// were accepted until they are measured again.
func TestAcceptance(t *testing.T) {
	p := &report.Pages{
		Files: []*results.File{measured("0123abc", "bbbb", "v1.36.3")}, Tree: report.Tree{Layout: "aaaa", Kubernetes: "1.37.2"},
	}
	rewrite := func(page string, unaccepted int) string {
		t.Helper()
		text, err := p.Rewrite(page)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Unaccepted(text); len(got) != unaccepted {
			t.Errorf("not accepted: %v, want %d", got, unaccepted)
		}
		return text
	}
	page := rewrite(comparePage, 1)
	p.Accept = report.Acceptance{Tables: []string{"compare"}, Date: "2026-02-04", Why: "takes hours"}
	page = rewrite(page, 0)
	const want = `<!-- bench:compare -->

| services × endpoints, operation           | kube-proxy | nftproxy | kube-proxy / nftproxy |
|-------------------------------------------|-----------:|---------:|----------------------:|
| 1,000 × 4, cold start, from process start |      3.0 s |    1.0 s |                   3.0 |

Measured: 2026-02-03, Fast 1, nftproxy 0123abc, rules bbbb, Kubernetes 1.36.3, load 1.2.

<!-- /bench -->
text
<!-- bench:earlier -->

| table     |   measured | nftproxy | rules | Kubernetes |   accepted | why not again |
|-----------|-----------:|---------:|------:|-----------:|-----------:|--------------:|
| 'compare' | 2026-02-03 |  0123abc |  bbbb |     1.36.3 | 2026-02-04 |   takes hours |

<!-- /bench -->
`
	if diff := cmp.Diff(strings.ReplaceAll(want, "'", "`"), page); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Accept = report.Acceptance{}
	if again := rewrite(page, 0); again != page {
		t.Errorf("another page without a reason:\n%s", cmp.Diff(page, again))
	}
	p = &report.Pages{Files: []*results.File{measured("4567def", "aaaa", "v1.36.3")}, Tree: p.Tree}
	page = rewrite(page, 1) // the row is of other figures
	if strings.Contains(page, "takes hours") {
		t.Errorf("the list keeps what was measured again:\n%s", page)
	}
	p = &report.Pages{Files: []*results.File{measured("4567def", "aaaa", "v1.37.2")}, Tree: p.Tree}
	if page = rewrite(page, 0); !strings.Contains(page, "<!-- bench:earlier -->\n\nNone.\n") {
		t.Errorf("the list has rows:\n%s", page)
	}
}
