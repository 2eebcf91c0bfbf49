package plan

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Signs and colours of the verbs in a printed plan.
var (
	signs   = [...]string{Add: "+", Delete: "-", Replace: "~"}
	colours = [...]terminal.Colour{Add: terminal.Green, Delete: terminal.Red, Replace: terminal.Yellow}
)

// Print writes the plan as text: its changes and a summary.
func (p *Plan) Print(w io.Writer, colour bool) error {
	if err := p.PrintChanges(w, colour, 0); err != nil {
		return err
	}
	if len(p.Changes) > 0 {
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintln(w, p.Summary())
	return err
}

// PrintChanges writes a line for each change under the name of its table, and the rules
// of chains, for the first changes, limit at most; zero means all. The signs are + for
// added, - for deleted and ~ for changed.
func (p *Plan) PrintChanges(w io.Writer, colour bool, limit int) error {
	pp := planPrinter{plan: p, w: bufio.NewWriter(w), colour: colour}
	n := 0
	for c := range p.lasting() {
		if pp.printChange(c); pp.hasFailed() {
			break
		}
		if n++; n == limit {
			break
		}
	}
	return pp.w.Flush()
}

// lasting returns the changes without temporary ones, as if there were none.
func (p *Plan) lasting() iter.Seq[*Change] {
	type place struct {
		set *nft.Set
		key nft.Key
	}
	temporary := make(map[place]*Change)
	for i := range p.Changes {
		if c := &p.Changes[i]; c.passing != 0 && c.Kind() == "element" {
			temporary[place{c.Set, c.elementKey()}] = c
		}
	}
	return func(yield func(*Change) bool) {
		for i := range p.Changes {
			c := &p.Changes[i]
			if c.passing != 0 {
				continue
			}
			if c.Old != nil && temporary[place{c.Set, c.Old.Key}] != nil {
				early, whole := temporary[place{c.Set, c.Old.Key}], *c
				whole.Verb, whole.Old = early.Verb, early.Old
				c = &whole
			}
			if !yield(c) {
				return
			}
		}
	}
}

// Summary counts the changes in one line.
func (p *Plan) Summary() string {
	text := "No changes."
	if !p.Empty() {
		text = fmt.Sprintf("%d to add, %d to change, %d to delete.", p.Count(Add), p.Count(Replace), p.Count(Delete))
	}
	switch p.Idle {
	case 0:
		return text
	case 1:
		return text + " 1 idle lane stays."
	}
	return fmt.Sprintf("%s %d idle lanes stay.", text, p.Idle)
}

// planPrinter prints changes. A bufio.Writer keeps the first error.
type planPrinter struct {
	plan   *Plan
	w      *bufio.Writer
	colour bool
	family model.Family // of the heading printed last
}

func (pp *planPrinter) hasFailed() bool {
	_, err := pp.w.Write(nil)
	return err != nil
}

func (pp *planPrinter) printChange(c *Change) {
	if c.Family != pp.family {
		pp.family = c.Family
		fmt.Fprintf(pp.w, "table %s %s\n", nft.FamilyKeyword(c.Family), nft.TableName)
	}
	switch c.Kind() {
	case "element":
		pp.printLine(c.Verb, 1, "%s", c.elementLine(pp.plan.ServicePort(c)))
	case "chain":
		pp.printChain(c)
	case "table":
		pp.printLine(c.Verb, 1, "table")
	default:
		declaration := c.Set.TypeText(c.Family)
		if c.Set.Counters {
			declaration += "; counter"
		}
		pp.printLine(c.Verb, 1, "%s %s { %s }", c.Kind(), c.Set.Name, declaration)
	}
}

// elementLine returns for example
//
//	map endpoints  10.96.0.1 . tcp . 80 . 2 : 10.0.0.3 . 8080 -> 10.0.0.9 . 8080  # default/web:http
func (c *Change) elementLine(service string) string {
	line := fmt.Sprintf("%s %-14s %s", c.Set.Keyword(), c.Set.Name, c.valueLine())
	if service != "" {
		line += "  # " + service
	}
	return line
}

func (c *Change) valueLine() string {
	switch c.Verb {
	case Add:
		return withoutComment(c.Set, c.New)
	case Delete:
		return withoutComment(c.Set, c.Old)
	}
	if c.Old.Value == c.New.Value {
		return fmt.Sprintf("%s (comment %q -> %q)", withoutComment(c.Set, c.New), c.Old.Comment, c.New.Comment)
	}
	return fmt.Sprintf("%s -> %s", withoutComment(c.Set, c.Old), c.Set.ValueText(c.New.Value))
}

func withoutComment(s *nft.Set, e *nft.Element) string {
	return s.ElementText(&nft.Element{Key: e.Key, Value: e.Value})
}

// printChain prints a chain with its rules. A chain that is added and then filled
// appears once.
func (pp *planPrinter) printChain(c *Change) {
	verb := c.Verb
	switch {
	case verb == Add && len(c.Chain.Rules) > 0:
		return
	case c.fills:
		verb = Add
	}
	pp.printLine(verb, 1, "chain %s", c.Chain.Name)
	if verb == Add && c.Chain.Hook != nft.NoHook {
		pp.printLine(Add, 2, "%s", c.Chain.HookText())
	}
	for _, r := range c.OldRules {
		pp.printLine(Delete, 2, "%s", r.Text(c.Family))
	}
	if verb == Delete {
		return
	}
	for _, r := range c.Chain.Rules {
		pp.printLine(Add, 2, "%s", r.Text(c.Family))
	}
}

func (pp *planPrinter) printLine(v Verb, depth int, format string, args ...any) {
	text := strings.Repeat("  ", depth) + signs[v] + " " + terminal.Printable(fmt.Sprintf(format, args...))
	fmt.Fprintln(pp.w, colours[v].Paint(text, pp.colour))
}

type planJSON struct {
	Changes []changeJSON `json:"changes"`
	Summary struct {
		Add    int `json:"add"`
		Change int `json:"change"`
		Delete int `json:"delete"`
	} `json:"summary"`
	Services  any `json:"services,omitempty"`  // that change
	Addresses any `json:"addresses,omitempty"` // of interfaces, likewise
}

type changeJSON struct {
	Action   string   `json:"action"` // add, change or delete
	Family   string   `json:"family"` // ip or ip6
	Table    string   `json:"table"`
	Kind     string   `json:"kind"`               // table, set, map, chain or element
	Name     string   `json:"name,omitempty"`     // of the set, map or chain
	Old      string   `json:"old,omitempty"`      // element before
	New      string   `json:"new,omitempty"`      // element after
	OldRules []string `json:"oldRules,omitempty"` // of a chain
	NewRules []string `json:"newRules,omitempty"`
	Service  string   `json:"service,omitempty"` // behind the element
}

// JSON writes the plan as one JSON object, with the Services and the addresses of interfaces that change.
func (p *Plan) JSON(w io.Writer, services, addresses any) error {
	out := planJSON{Changes: []changeJSON{}, Services: services, Addresses: addresses}
	out.Summary.Add, out.Summary.Change, out.Summary.Delete = p.Count(Add), p.Count(Replace), p.Count(Delete)
	for c := range p.lasting() {
		out.Changes = append(out.Changes, c.toJSON(p.ServicePort(c)))
	}
	return terminal.JSON(w, out)
}

func (c *Change) toJSON(service string) changeJSON {
	j := changeJSON{Action: c.Verb.String(), Family: nft.FamilyKeyword(c.Family), Table: nft.TableName, Kind: c.Kind(), Service: service}
	if c.Set != nil {
		j.Name = c.Set.Name
	}
	if c.Old != nil {
		j.Old = c.Set.ElementText(c.Old)
	}
	if c.New != nil {
		j.New = c.Set.ElementText(c.New)
	}
	if c.Chain != nil {
		j.Name = c.Chain.Name
		j.OldRules = ruleTexts(c.OldRules, c.Family)
		if c.Verb == Replace {
			j.NewRules = ruleTexts(c.Chain.Rules, c.Family)
		}
	}
	return j
}

func ruleTexts(rules []nft.Rule, f model.Family) []string {
	var out []string
	for _, r := range rules {
		out = append(out, r.Text(f))
	}
	return out
}
