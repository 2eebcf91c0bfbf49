package fleet

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

const (
	maxSlow  = 5  // nodes that are named
	barWidth = 40 // characters
)

// Print writes the report as text. With all, no list of nodes is cut.
func (r *Convergence) Print(w io.Writer, all, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours = paint
	r.head(p)
	if r.Times.Count > 0 {
		r.bars(p)
		r.slowest(p, all)
	}
	r.unmeasured(p, all)
	if n := len(r.Uncovered); n > 0 {
		p.Line("")
		p.Line("not asked, because no nftproxy is for them: %s: %s", terminal.Count(n, "node"), terminal.List(r.Uncovered, maxNamed))
	}
	r.namespaces(p)
	return p.Flush()
}

func (r *Convergence) head(p *terminal.Printer) {
	complete := 0
	for i := range r.Nodes {
		if r.Nodes[i].Reason == "" {
			complete++
		}
	}
	colour := terminal.Green
	if complete < len(r.Nodes) {
		colour = terminal.Red
	}
	p.Painted(colour, "%d of %s measured in %s", complete, terminal.Count(len(r.Nodes), "node"), terminal.Count(r.Rounds, "round"))
	if r.Times.Count == 0 {
		return
	}
	p.Line("from the answer of the API server until the kernel has the change:")
	p.Line("")
	p.Line("  p50 %s   p90 %s   p99 %s   max %s", duration(r.Times.P50), duration(r.Times.P90), duration(r.Times.P99), duration(r.Times.Max))
	p.Line("  each is too long by up to %s (p50 %s): the time in which the node answered", duration(r.Excess.Max), duration(r.Excess.P50))
}

func (r *Convergence) bars(p *terminal.Printer) {
	most := 0
	for _, b := range r.Histogram {
		most = max(most, b.Count)
	}
	p.Line("")
	for _, b := range r.Histogram {
		bar := strings.Repeat("#", (b.Count*barWidth+most-1)/most)
		p.Line("%s", strings.TrimRight(fmt.Sprintf("  up to %6s  %-*s  %d", duration(b.UpTo), barWidth, bar, b.Count), " "))
	}
}

func (r *Convergence) slowest(p *terminal.Printer, all bool) {
	rows := [][]string{{"SLOWEST NODES", "MAX", "P50", "TOO LONG BY UP TO"}}
	more := 0
	nodes := slices.Clone(r.Nodes)
	slices.SortStableFunc(nodes, func(a, b NodeTimes) int { return cmp.Compare(b.Max, a.Max) })
	for i := range nodes {
		n := &nodes[i]
		switch {
		case len(n.Seconds) == 0:
		case len(rows) > maxSlow && !all:
			more++
		default:
			rows = append(rows, []string{n.Name, duration(n.Max), duration(n.P50), duration(n.Excess)})
		}
	}
	p.Section(rows)
	if more > 0 {
		p.Line("and %s more: --all", terminal.Count(more, "node"))
	}
}

func (r *Convergence) unmeasured(p *terminal.Printer, all bool) {
	rows := [][]string{{"NOT MEASURED", "ROUNDS", "REASON"}}
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Reason != "" {
			rows = append(rows, []string{n.Name, fmt.Sprint(len(n.Seconds)), short(n.Reason, all)})
		}
	}
	p.Section(rows)
}

func (r *Convergence) namespaces(p *terminal.Printer) {
	if len(r.Removed)+len(r.Others) > 0 || r.Remains != "" {
		p.Line("")
	}
	for _, name := range r.Removed {
		p.Line("namespace %s, which an earlier run had left, is removed", name)
	}
	for _, o := range r.Others {
		p.Line("namespace %s is of another run, which ends at %s or before; a run after that removes it", o.Namespace, o.Ends.UTC().Format("15:04:05 MST"))
	}
	if r.Remains != "" {
		p.Painted(terminal.Yellow, "namespace %s has nothing of this run, and the API server is still deleting it", r.Remains)
	}
}

// duration returns seconds with two or three digits.
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}
