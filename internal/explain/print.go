package explain

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Print writes a result for people, with what the objects tell unless b is
// nil: the answer, a block of facts, and the path.
func Print(w io.Writer, r *Result, b *Background) error {
	p := &printer{w: bufio.NewWriter(w)}
	fmt.Fprintln(p.w, model.Printable(fmt.Sprintf("%s: %s", r.Packet, heading(r))))
	if service, kind := serviceOf(r, b); service != "" {
		p.fact("service", "%s (%s)", service, kind)
	}
	p.outcomes(r)
	p.source(r)
	p.affinity(r)
	p.background(b)
	for _, n := range r.Notes {
		p.fact("note", "%s", n)
	}
	p.paths(r)
	return p.w.Flush()
}

// heading says in a few words what becomes of a packet.
func heading(r *Result) string {
	v, ok := r.Verdict()
	if !ok {
		return "it depends"
	}
	if v == Forward {
		return "forwarded"
	}
	return fate(&r.Outcomes[0])
}

// fate returns the verdict of an outcome other than Forward, and its reason.
func fate(o *Outcome) string {
	word := [...]string{NotOurs: "not ours", Reject: "rejected", Drop: "dropped", Unknown: "unknown"}[o.Verdict]
	return word + ": " + o.Reason
}

// plain returns where a packet goes; if it goes nowhere, its fate.
func plain(o *Outcome) string {
	if o.Endpoint.IsValid() {
		return o.Endpoint.String()
	}
	return fate(o)
}

func serviceOf(r *Result, b *Background) (name, kind string) {
	if b != nil && b.Route != nil {
		return b.Route.Port.String(), b.Route.Kind.String()
	}
	return r.Service, r.Kind
}

// printer writes indented lines. A bufio.Writer keeps the first error.
type printer struct {
	w    *bufio.Writer
	last string // name of the fact printed last
}

// fact writes a line under a name, which is not repeated.
func (p *printer) fact(name, format string, args ...any) {
	shown := name
	if name == p.last {
		shown = ""
	}
	p.last = name
	fmt.Fprintf(p.w, "  %-9s  %s\n", shown, model.Printable(fmt.Sprintf(format, args...)))
}

// outcomes lists the endpoints with their shares.
func (p *printer) outcomes(r *Result) {
	if _, ok := r.Verdict(); ok && !r.Outcomes[0].Endpoint.IsValid() {
		return
	}
	width := 0
	for i := range r.Outcomes {
		width = max(width, len(plain(&r.Outcomes[i])))
	}
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		p.fact("endpoints", "%-*s  %5.1f %%%s", width, plain(o), o.Share*100, slotsText(o))
	}
}

func slotsText(o *Outcome) string {
	switch {
	case o.Bound:
		return "  the client is bound to it"
	case o.Of < 2:
		return ""
	}
	text := fmt.Sprintf("  %d of %d slots", len(o.Slots), o.Of)
	if len(o.Slots) > maxListed {
		return text
	}
	numbers := make([]string, len(o.Slots))
	for i, n := range o.Slots {
		numbers[i] = strconv.FormatUint(uint64(n), 10)
	}
	return text + ": " + strings.Join(numbers, ", ")
}

// maxListed is how many slots of an endpoint, and how many endpoints that are
// left out for one reason, are listed and not only counted.
const maxListed = 6

// source tells by which rules the source is masqueraded, and towards which
// endpoints if that makes a difference.
func (p *printer) source(r *Result) {
	var rules []string
	towards := make(map[string][]string)
	for _, o := range r.Outcomes {
		if o.Verdict != Forward && o.Masquerade == "" {
			continue
		}
		if !slices.Contains(rules, o.Masquerade) {
			rules = append(rules, o.Masquerade)
		}
		towards[o.Masquerade] = append(towards[o.Masquerade], plain(&o))
	}
	for _, rule := range rules {
		to := ""
		if len(rules) > 1 {
			to = " towards " + strings.Join(towards[rule], ", ")
		}
		if rule == "" {
			p.fact("source", "kept%s", to)
			continue
		}
		p.fact("source", "masqueraded%s by: %s", to, rule)
	}
}

func (p *printer) affinity(r *Result) {
	for _, o := range r.Outcomes {
		if o.Remember > 0 {
			p.fact("affinity", "the client stays with its endpoint for %s after its last new connection", o.Remember)
			return
		}
	}
}

func (p *printer) background(b *Background) {
	if b == nil {
		return
	}
	width := 0
	for _, o := range b.LeftOut {
		width = max(width, len(o.Endpoint.Address.String()))
	}
	count := make(map[string]int)
	for _, o := range b.LeftOut {
		if count[o.Reason]++; count[o.Reason] <= maxListed {
			p.fact("left out", "%-*s  %s", width, o.Endpoint.Address, o.Reason)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(count)) {
		if more := count[reason] - maxListed; more > 0 {
			p.fact("left out", "%-*s  %s", width, fmt.Sprintf("and %d more", more), reason)
		}
	}
	for _, c := range b.Losers {
		p.fact("conflict", "%s (%s) asks for this frontend too, and does not get it", c.Port, c.Kind)
	}
}

// paths writes the rules that all outcomes met, then those that each met
// alone; outcomes that met the same are written once.
func (p *printer) paths(r *Result) {
	if len(r.Outcomes[0].Path) == 0 {
		return
	}
	fmt.Fprintln(p.w, "\npath")
	n := commonSteps(r.Outcomes)
	chain := p.steps("", r.Outcomes[0].Path[:n])
	groups := group(r.Outcomes, n)
	for _, g := range groups {
		if len(groups) > 1 {
			fmt.Fprintf(p.w, "  to %s\n", strings.Join(targets(g), ", "))
			chain = ""
		}
		p.steps(chain, g[0].Path[n:])
	}
}

// steps writes rules under the names of their chains, of which chain is the
// one written last.
func (p *printer) steps(chain string, steps []Step) string {
	for _, s := range steps {
		if s.Chain != chain {
			chain = s.Chain
			fmt.Fprintf(p.w, "  %s\n", model.Printable(chain))
		}
		word := "no "
		if s.Matched {
			word = "yes"
		}
		fmt.Fprintf(p.w, "    %s  %s\n", word, model.Printable(s.Rule))
		for _, d := range s.Details {
			fmt.Fprintf(p.w, "         %s\n", model.Printable(d))
		}
	}
	return chain
}

// commonSteps returns how many steps all outcomes begin with.
func commonSteps(outcomes []Outcome) int {
	first := outcomes[0].Path
	n := len(first)
	for _, o := range outcomes[1:] {
		n = min(n, len(o.Path))
		for i := range n {
			if !o.Path[i].same(first[i]) {
				n = i
				break
			}
		}
	}
	return n
}

// group puts together outcomes whose paths are the same from step n on.
func group(outcomes []Outcome, n int) [][]Outcome {
	var groups [][]Outcome
	for _, o := range outcomes {
		i := slices.IndexFunc(groups, func(g []Outcome) bool { return slices.EqualFunc(g[0].Path[n:], o.Path[n:], Step.same) })
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], o)
	}
	return groups
}

func targets(outcomes []Outcome) []string {
	var out []string
	for i := range outcomes {
		o := &outcomes[i]
		out = append(out, cmp.Or(endpointText(o.Endpoint), o.Verdict.String()))
	}
	return out
}

func endpointText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
