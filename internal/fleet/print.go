package fleet

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Limits of lists that are cut.
const (
	maxGood     = 20 // nodes without a problem
	maxServices = 5
	maxReason   = 240 // characters
)

// Print writes a report as text, the worst nodes first. With all, no list is cut.
func (r *Report) Print(w io.Writer, all, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours = paint
	r.verdict(p)
	r.versions(p)
	r.services(p, all)
	r.table(p, all)
	return p.Flush()
}

// verdict writes the answer to "is something wrong?".
func (r *Report) verdict(p *terminal.Printer) {
	var parts []string
	for _, v := range verdicts {
		if n := r.Verdicts[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	colour := terminal.Green
	switch {
	case r.Wrong() > 0:
		colour = terminal.Red
	case r.Verdicts[Problems] > 0:
		colour = terminal.Yellow
	}
	p.Painted(colour, "%s: %s", terminal.Count(len(r.Nodes), "node"), terminal.List(parts, len(parts)))
}

func (r *Report) versions(p *terminal.Printer) {
	if len(r.Versions) < 2 {
		return
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(r.Versions)) {
		parts = append(parts, fmt.Sprintf("%s on %s", v, terminal.Count(r.Versions[v], "node")))
	}
	p.Painted(terminal.Yellow, "mixed versions: %s", terminal.List(parts, maxServices))
}

func (r *Report) services(p *terminal.Printer, all bool) {
	most := maxServices
	if all {
		most = len(r.Services)
	}
	for i, s := range r.Services {
		if i == most {
			p.Line("and %s of Services more: --all", terminal.Count(len(r.Services)-most, "problem"))
			return
		}
		p.Line("%s: %s on %s: %s", s.Object, s.Reason, nodesOf(&s), short(s.Message, all))
	}
}

func nodesOf(s *ServiceProblem) string {
	if s.Nodes == 1 {
		return s.Node
	}
	return terminal.Count(s.Nodes, "node")
}

func (r *Report) table(p *terminal.Printer, all bool) {
	rows := [][]string{{"NODE", "VERDICT", "BEHIND", "LAST SYNC", "VERSION", "SOURCE", "REASON"}}
	good := 0
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Verdict == Good {
			if good++; good > maxGood && !all {
				continue
			}
		}
		synced := ""
		if !n.LastSuccess.IsZero() {
			synced = r.Asked.Sub(n.LastSuccess).Round(time.Second).String() + " ago"
		}
		behind := ""
		if n.BehindSeconds > 0 {
			behind = time.Duration(n.BehindSeconds * float64(time.Second)).Round(time.Second).String()
		}
		rows = append(rows, []string{n.Name, string(n.Verdict), behind, synced, n.Version, n.Source, short(n.Reason, all)})
	}
	if r.NewestError != "" {
		p.Painted(terminal.Yellow, "whether nodes have seen the newest objects is not known: %s", r.NewestError)
	}
	p.Line("")
	p.Table("", rows)
	if good > maxGood && !all {
		p.Line("and %d more that are ok: --all", good-maxGood)
	}
}

func short(text string, all bool) string {
	if runes := []rune(text); !all && len(runes) > maxReason {
		return string(runes[:maxReason]) + "..."
	}
	return text
}
