package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// maxListed is how many slots of an endpoint, and how many excluded endpoints for
// one reason, are listed; further ones are counted.
const maxListed = 6

// Detail says how much of a result is printed.
type Detail uint8

const (
	Normal Detail = iota // the answer and the path, without rules of other protocols
	Brief                // the answer
	Full                 // everything
)

// Print writes a result as text: the answer, a block of facts, and the path. paint asks for
// colours.
func Print(w io.Writer, r *Result, d Detail, paint bool) error {
	p := &printer{terminal.NewPrinter(w, "  "), d}
	p.Colours, p.Words = paint, r.Words
	heading, colour := r.headingText()
	p.Painted(colour, "%s: %s", r.askedPacket().packetText(r.Words), heading)
	if r.Asked != nil {
		p.Fact("listener", "nftproxy run listens on %s, and connects to %s", r.Asked.targetText(), r.Packet)
	}
	if r.Service != "" {
		p.Fact("service", "%s%s", r.Service, r.Words.Kind(r.Kind))
	}
	if r.Frontend.IsRange() {
		p.Fact("frontend", "%s, a range of ports", r.Frontend)
	}
	if port := r.Outcomes[0].Relay; port != 0 {
		p.Fact(setting.Relay.Label, "nftproxy run accepts the connection at port %d, and makes one of its own to a server, at up to ten times the cost of rules", port)
	}
	p.printOutcomes(r)
	p.printMaglev(r)
	p.printSource(r)
	if i := slices.IndexFunc(r.Outcomes, func(o Outcome) bool { return o.Remember > 0 }); i >= 0 {
		where := ""
		if r.Outcomes[i].Together {
			where = ", at all ports of the Balance"
		}
		p.Fact(setting.Affinity.Label, "the client stays with its endpoint for %s after its last new connection%s", model.DurationText(r.Outcomes[i].Remember), where)
	}
	for _, limit := range r.Outcomes[0].Limits {
		p.Fact(setting.Limits.Label, "%s; more are dropped", limit)
	}
	p.leftOut(r.LeftOut)
	for _, c := range r.Conflicts {
		p.Fact("conflict", "%s%s also claims this frontend, and lost", c.Service, r.Words.Kind(c.Kind))
	}
	for _, n := range r.Notes {
		p.Fact("note", "%s", n)
	}
	if d != Brief {
		p.printPaths(r)
	}
	return p.Flush()
}

func (r *Result) headingText() (text string, colour terminal.Colour) {
	switch v, ok := r.Verdict(); {
	case !ok:
		return "it depends", terminal.Yellow
	case v == Forward && r.Outcomes[0].Relay != 0:
		return "relayed", terminal.Green
	case v == Forward:
		return "forwarded", terminal.Green
	case v == Answer:
		colour = terminal.Green
	case v == Reject || v == Drop:
		colour = terminal.Red
	default:
		colour = terminal.Yellow
	}
	return r.Outcomes[0].verdictText(r.Words), colour
}

// endText returns the endpoint; without one, the verdict and its reason.
func (o *Outcome) endText(in words.Vocabulary) string {
	switch {
	case !o.Endpoint.IsValid():
		return o.verdictText(in)
	case o.Name != "":
		return o.Endpoint.String() + " (" + terminal.Printable(o.Name) + ")"
	}
	return o.Endpoint.String()
}

func (o *Outcome) verdictText(in words.Vocabulary) string {
	return [...]string{NotOurs: "not served by nftproxy", Reject: "rejected", Drop: "dropped", Unknown: "unknown", Answer: "answered"}[o.Verdict] + ": " + in.Text(o.Reason)
}

type printer struct {
	*terminal.Printer
	detail Detail
}

func (p *printer) printOutcomes(r *Result) {
	if _, ok := r.Verdict(); ok && !r.Outcomes[0].Endpoint.IsValid() {
		return
	}
	width := 0
	for _, o := range r.Outcomes {
		width = max(width, len(o.endText(r.Words)))
	}
	for _, o := range r.Outcomes {
		p.Fact("endpoints", "%-*s  %5.1f %%%s", width, o.endText(r.Words), o.Share*100, p.slotsText(r, &o))
	}
}

func (p *printer) printMaglev(r *Result) {
	i := slices.IndexFunc(r.Outcomes, func(o Outcome) bool { return o.TableSize > 0 })
	if i < 0 {
		return
	}
	o := &r.Outcomes[i]
	by := "the client's address"
	if o.Scheduler == model.MaglevPort.String() {
		by = "the client's address and port"
	}
	if len(r.Outcomes) == 1 && o.Of == 1 {
		p.Fact(setting.Scheduler.Label, "%s: slot %d of %d, by %s", o.Scheduler, o.Slots[0], o.TableSize, by)
		return
	}
	p.Fact(setting.Scheduler.Label, "%s: one of %d slots, by %s", o.Scheduler, o.TableSize, by)
}

// slotsText says how an endpoint gets its share: connections take the slots in turn, and an
// endpoint has as many as its weight. Equal shares need no explanation.
func (p *printer) slotsText(r *Result, o *Outcome) string {
	equal := !slices.ContainsFunc(r.Outcomes, func(other Outcome) bool { return len(other.Slots) != len(o.Slots) })
	switch {
	case o.Bound:
		return "  the client is bound to it"
	case o.Of < 2 || equal && p.detail != Full:
		return ""
	}
	text := fmt.Sprintf("  by weight: %d of %d slots", len(o.Slots), o.Of)
	if equal || o.TableSize > 0 { // numbers of slots in a table differ by one anyway
		text = fmt.Sprintf("  %d of %d slots", len(o.Slots), o.Of)
	}
	if p.detail == Full && len(o.Slots) <= maxListed {
		text += ", number " + strings.Trim(strings.ReplaceAll(fmt.Sprint(o.Slots), " ", ", "), "[]")
	}
	return text
}

// printSource lists the rules that masquerade the source, with the endpoints if the
// rules differ between them.
func (p *printer) printSource(r *Result) {
	var rules []string
	towards := make(map[string][]string)
	for _, o := range r.Outcomes {
		if o.Verdict != Forward && o.Masquerade == "" {
			continue
		}
		if towards[o.Masquerade] == nil {
			rules = append(rules, o.Masquerade)
		}
		towards[o.Masquerade] = append(towards[o.Masquerade], o.endText(r.Words))
	}
	for _, rule := range rules {
		to := ""
		if len(rules) > 1 {
			to = " towards " + strings.Join(towards[rule], ", ")
		}
		if r.Outcomes[0].Relay != 0 {
			p.Fact("source", "an address of this machine%s", to)
		} else if rule == "" {
			p.Fact("source", "kept%s", to)
		} else {
			p.Fact("source", "masqueraded%s by: %s", to, rule)
		}
	}
}

func (p *printer) leftOut(all []Omission) {
	width := 0
	count := make(map[string]int)
	for _, o := range all {
		width = max(width, len(model.EndpointText(o.Endpoint)))
	}
	for _, o := range all {
		if count[o.Reason]++; count[o.Reason] <= maxListed {
			p.Fact("left out", "%-*s  %s", width, model.EndpointText(o.Endpoint), o.Reason)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(count)) {
		if more := count[reason] - maxListed; more > 0 {
			p.Fact("left out", "%-*s  %s", width, fmt.Sprintf("and %d more", more), reason)
		}
	}
}

// printPaths writes the common steps of all outcomes, then the others. Outcomes with
// equal steps share an entry.
func (p *printer) printPaths(r *Result) {
	if len(r.Outcomes[0].Path) == 0 {
		return
	}
	n := r.commonSteps()
	var paths [][]Step
	var targets []string // of each path
	for _, o := range r.Outcomes {
		target := o.Verdict.String()
		if o.Endpoint.IsValid() {
			target = o.Endpoint.String()
		}
		path := o.Path[n:]
		if i := slices.IndexFunc(paths, func(p []Step) bool { return slices.EqualFunc(p, path, Step.isSame) }); i >= 0 {
			targets[i] += ", " + target
			continue
		}
		paths, targets = append(paths, path), append(targets, target)
	}
	p.WriteString("\npath\n")
	chain := p.printSteps("", r.Outcomes[0].Path[:n])
	defer p.printSkipped(r)
	for i, path := range paths {
		if len(paths) > 1 {
			p.Line("  to %s", targets[i])
			chain = ""
		}
		p.printSteps(chain, path)
	}
}

// printSteps writes rules under the names of their chains; chain is the last one that
// was written.
func (p *printer) printSteps(chain string, steps []Step) string {
	for _, s := range steps {
		if s.otherProtocol && p.detail != Full {
			continue
		}
		if s.Chain != chain {
			chain = s.Chain
			p.Line("  %s", chain)
		}
		word := "no "
		if s.Matched {
			word = "yes"
		}
		p.Line("    %s  %s", word, s.Rule)
		for _, d := range s.Details {
			p.Line("         %s", d)
		}
	}
	return chain
}

func (p *printer) printSkipped(r *Result) {
	n := 0
	for _, s := range r.Outcomes[0].Path {
		if s.otherProtocol {
			n++
		}
	}
	if n > 0 && p.detail != Full {
		p.Line("  rules for other protocols are not listed: --full lists these %d, too", n)
	}
}

// Summary returns the answer in one line: "forwarded to 10.128.0.2:8080 or 10.128.0.3:8080".
func (r *Result) Summary() string {
	var ends []string
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		text := o.endText(r.Words)
		if o.Masquerade != "" {
			text += " (masqueraded)"
		}
		ends = append(ends, text)
	}
	heading := ""
	if r.Outcomes[0].Endpoint.IsValid() {
		heading = "forwarded to "
	}
	if r.Outcomes[0].Relay != 0 {
		heading = "relayed to "
	}
	if more := len(ends) - maxListed; more > 0 {
		return heading + strings.Join(ends[:maxListed], ", ") + fmt.Sprintf(" or %d more", more)
	}
	return heading + strings.Join(ends, " or ")
}
