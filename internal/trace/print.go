package trace

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Print writes the report as text: the outcome, a block of facts, and the rules that the
// packet has met. paint asks for colours, brief leaves out the rules.
func (r *Report) Print(w io.Writer, brief, paint bool) error {
	p := terminal.NewPrinter(w, "  ")
	p.Colours, p.Words, p.Width = paint, r.Words, len("destination")
	from := ""
	if r.From != "" {
		from = " from " + r.From
	}
	p.Painted(r.outcomeColour(), "%s %s%s: %s", r.Protocol, r.To, from, r.Text)
	if r.Service != "" {
		p.Fact("service", "%s", r.Service)
	}
	for _, t := range r.Translations {
		p.Fact(t.Field, "%s → %s, by %s", t.From, t.To, t.By)
	}
	if r.Attempts > 1 {
		p.Fact("attempts", "the client sent its first packet %d times", r.Attempts)
	}
	if e := r.Prediction; e != nil {
		p.Fact("explain", "predicts: %s", e.Predicts)
		if e.Agrees {
			p.Fact("explain", "the kernel did the same: %s", e.Kernel)
		} else {
			p.PaintedFact(terminal.Yellow, "explain", "the kernel did something else: %s", e.Kernel)
		}
	}
	for _, n := range r.Notes {
		p.Fact("note", "%s", n)
	}
	if !brief {
		printPath(p, "path", r.Path)
		printPath(p, "path of the answer", r.Answer)
	}
	return p.Flush()
}

func (r *Report) outcomeColour() terminal.Colour {
	switch r.Outcome {
	case Answered:
		return terminal.Green
	case Refused, Unanswered, NoPacket:
		return terminal.Yellow
	}
	return terminal.Red
}

func printPath(p *terminal.Printer, title string, hooks []Hook) {
	if len(hooks) == 0 {
		return
	}
	p.Line("")
	p.Line("%s", title)
	for _, h := range hooks {
		p.Line("  %s: %s%s%s", h.Name, h.Packet, with(", from ", h.In), with(", to ", h.Out))
		for _, c := range h.Chains {
			p.Line("    chain %s in table %s %s%s", c.Name, c.Family, c.Table, inBrackets(c.Program))
			for i := range c.Steps {
				p.Line("      %s", c.Steps[i].stepText(c.Name))
			}
		}
	}
}

func with(word, text string) string {
	if text == "" {
		return ""
	}
	return word + text
}

// stepText returns a step as text, with the name of its chain if that is not the base chain.
func (s *Step) stepText(base string) string {
	var b strings.Builder
	if s.Chain != base {
		b.WriteString(s.Chain + ", ")
	}
	switch {
	case s.Handle == 0:
		fmt.Fprintf(&b, "policy %s", s.Verdict)
	case s.Rule == 0:
		fmt.Fprintf(&b, "rule with handle %d: %s", s.Handle, s.Verdict)
	default:
		fmt.Fprintf(&b, "rule %d: %s", s.Rule, cmp.Or(s.Text, s.Verdict))
		if s.needsVerdict() {
			b.WriteString(" → " + s.Verdict)
		}
	}
	if s.Mark != nil {
		b.WriteString(" (mark " + *s.Mark + ")")
	}
	return b.String()
}

// needsVerdict reports whether the text of a rule does not say its verdict: one that a map has,
// or the one of a translation.
func (s *Step) needsVerdict() bool {
	text := strings.ToLower(s.Text)
	_, to, jumps := strings.Cut(s.Verdict, " ")
	switch {
	case text == "" || s.Verdict == Continue.String():
		return false
	case jumps:
		return !slices.Contains(strings.Fields(s.Text), to)
	case s.Verdict == Drop.String():
		return !strings.Contains(text, "drop") && !strings.Contains(text, "reject")
	}
	return !strings.Contains(text, s.Verdict)
}
