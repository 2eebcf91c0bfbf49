package parity

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/release"
)

// table compares both programs by one kind of property.
type table struct {
	title, anchor string
	about         string // above the rows
	column        string // the heading of the names
	all           bool   // list rows without a difference, too
	rows          []row
}

// row is one property of both programs. Where both are equal, there is nothing to decide.
type row struct {
	name, kube, nft string
	explained       bool // what nftproxy says about it is the reason
}

func (r row) differs() bool { return r.kube != r.nft && !r.explained }

func (x *table) add(name, kube, nft string) {
	x.rows = append(x.rows, row{name: name, kube: kube, nft: nft})
}

func (x *table) key(r row) string { return x.anchor + ": " + r.name }

// decision returns the reason for a difference, by the whole name or by a prefix of it that
// ends with "*".
func (x *table) decision(r row) (key, reason string) {
	key = x.key(r)
	if reason = decisions[key]; reason != "" {
		return key, reason
	}
	for k, v := range decisions {
		if prefix, is := strings.CutSuffix(k, "*"); is && strings.HasPrefix(key, prefix) {
			return k, v
		}
	}
	return key, ""
}

// check names the differences without a decision.
func (x *table) check(t *testing.T, decided map[string]bool) {
	t.Helper()
	slices.SortStableFunc(x.rows, func(a, b row) int {
		if x.all {
			return 0
		}
		return strings.Compare(a.name, b.name)
	})
	for _, r := range x.rows {
		if !r.differs() {
			continue
		}
		key, reason := x.decision(r)
		if decided[key] = true; reason == "" {
			t.Errorf("no decision about %q: kube-proxy %q, nftproxy %q", key, r.kube, r.nft)
		}
	}
}

// page is docs/parity.md.
func page(all []*table) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Kubernetes %s beside nftproxy

kube-proxy %s in mode `+"`nftables`"+`, built from its source, and nftproxy: what both take, export and do with packets.
`+"`make parity`"+` runs both on one API server and writes this page. A difference needs a reason in its last column; the
test fails without one. [behaviour.md](behaviour.md#differences-from-kube-proxy) lists the differences that no table of
this page can show.

| | compared | the same | explained |
|---|--:|--:|--:|
`, strings.TrimPrefix(release.Kubernetes, "v"), release.Kubernetes)
	for _, x := range all {
		same := 0
		for _, r := range x.rows {
			if r.kube == r.nft {
				same++
			}
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %d | %d | %d |\n", x.title, x.anchor, len(x.rows), same, len(x.rows)-same)
	}
	for _, x := range all {
		x.write(&b)
	}
	return b.String()
}

func (x *table) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n| %s | kube-proxy | nftproxy | why |\n|---|---|---|---|\n", x.title, x.about, x.column)
	var same []string
	for _, r := range x.rows {
		if r.kube == r.nft && !x.all {
			same = append(same, "`"+r.name+"`")
			continue
		}
		reason := ""
		if r.differs() {
			_, reason = x.decision(r)
		}
		name := r.name
		if !x.all {
			name = "`" + name + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, r.kube, r.nft, reason)
	}
	if len(same) > 0 {
		fmt.Fprintf(b, "\nThe same in both: %s.\n", strings.Join(same, ", "))
	}
}
