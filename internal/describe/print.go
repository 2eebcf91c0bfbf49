package describe

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// JSON writes a description as one JSON object.
func JSON(w io.Writer, s *Service) error {
	return terminal.JSON(w, s)
}

// Print writes a description as text; now is the current time, and paint asks for colours.
func Print(w io.Writer, s *Service, now time.Time, paint bool) error {
	p := &printer{terminal.NewPrinter(w, "")}
	p.Colours, p.Width = paint, len(setting.ClientAddresses.Label)
	p.heading(s)
	p.settings(s)
	p.remarks(s, now)
	for i := range s.Ports {
		p.port(s, &s.Ports[i])
	}
	return p.Flush()
}

type printer struct{ *terminal.Printer }

// heading says in one line whether the Service works.
func (p *printer) heading(s *Service) {
	node := ""
	if s.Node != "" {
		node = " on node " + s.Node
	}
	if s.Zone != "" {
		node += " (zone " + s.Zone + ")"
	}
	verdict, colour := s.verdict()
	p.Painted(colour, "%s%s: %s", s.object(), node, verdict)
	p.WriteString("\n")
}

// verdict counts hosts: one that serves several ports counts once.
func (s *Service) verdict() (text string, colour terminal.Colour) {
	serving, all := make(map[string]bool), make(map[string]bool)
	var failing []string
	for i := range s.Ports {
		port := &s.Ports[i]
		for _, e := range port.Endpoints {
			all[e.host()] = true
			if e.Inside.Part > 0 || e.Outside != nil && e.Outside.Part > 0 {
				serving[e.host()] = true
			}
		}
		failing = append(failing, port.failing()...)
	}
	text, colour = fmt.Sprintf("%d of %d endpoints take connections", len(serving), len(all)), terminal.Yellow
	switch {
	case len(all) == 0:
		text, colour = "no endpoints", terminal.Red
	case len(serving) == 0:
		colour = terminal.Red
	case len(serving) == len(all):
		colour = terminal.Green
		text = fmt.Sprintf("%d endpoints take connections", len(all))
		if len(all) == 1 {
			text = "1 endpoint takes connections"
		}
	}
	if len(failing) > 0 {
		text, colour = text+"; "+strings.Join(failing, "; "), terminal.Red
	}
	return text, colour
}

// host returns the address without the port.
func (e *Endpoint) host() string {
	if a, err := netip.ParseAddrPort(e.Address); err == nil {
		return a.Addr().String()
	}
	return e.Address
}

// failing returns what happens to connections that are not forwarded.
func (p *Port) failing() (out []string) {
	name := "connections"
	if p.Name != "" {
		name += fmt.Sprintf(" to port %q", p.Name)
	}
	for _, f := range p.Frontends {
		text := ""
		switch {
		case f.ServedBy != "":
			text = f.Address + " is served by " + f.ServedBy
		case f.Inside == model.Reject.String():
			text = name + " are rejected"
		case f.Inside == model.Drop.String():
			text = name + " are dropped"
		case f.Outside == model.Drop.String():
			text = name + " from outside are dropped"
		}
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

func (p *printer) settings(s *Service) {
	switch {
	case s.Balance: // has none
	case s.InternalPolicy != "" && s.ExternalPolicy != "":
		p.Fact("policies", "internal %s, external %s", s.InternalPolicy, s.ExternalPolicy)
	case s.InternalPolicy != "":
		p.Fact("policy", "%s", s.InternalPolicy)
	case s.ExternalPolicy != "":
		p.Fact("policies", "external %s", s.ExternalPolicy)
	}
	switch {
	case s.Maglev != nil:
		p.Fact(setting.Scheduler.Label, "%s, %s", s.Scheduler, cmp.Or(s.Maglev.Note, fmt.Sprintf("%d slots", s.Maglev.Slots)))
	case s.Scheduler != "":
		p.Fact(setting.Scheduler.Label, "%s", s.Scheduler)
	}
	if s.AffinitySeconds > 0 {
		p.Fact(setting.Affinity.Label, "a client stays with its endpoint for %s after its last new connection%s",
			setting.ShortTime(time.Duration(s.AffinitySeconds*float64(time.Second))), s.Clients.text())
	}
	p.clients(s)
	p.limits(s)
	if s.ClientAddresses != "" {
		p.Fact(setting.ClientAddresses.Label, "%s", setting.ClientAddresses.Told(s.ClientAddresses))
	}
	p.pings(s)
	if h := s.HealthCheck; h != nil {
		var counts []string
		for _, f := range slices.Sorted(maps.Keys(h.Endpoints)) {
			counts = append(counts, fmt.Sprintf("%d over %s", h.Endpoints[f], f))
		}
		p.Fact("health", "port %d answers for the ready endpoints on this node: %s", h.Port, strings.Join(counts, ", "))
	}
	for _, row := range setting.All {
		if row.IsStated() && row.In(&s.Stated) != "" {
			p.Fact(row.Label, "%s", row.Told(row.In(&s.Stated)))
		}
	}
	switch {
	case s.Balance:
	case len(s.Slices) > 0:
		p.Fact("slices", "%s", list(s.Slices, maxListed))
	case s.From != Kernel:
		p.Fact("slices", "none has the label kubernetes.io/service-name: %s in namespace %s", s.Name, s.Namespace)
	}
}

func (c *Clients) text() string {
	switch {
	case c == nil:
		return ""
	case c.AtLeast:
		return fmt.Sprintf("; at least %d clients are bound", c.Bound)
	case c.Bound == 1:
		return "; 1 client is bound"
	}
	return fmt.Sprintf("; %d clients are bound", c.Bound)
}

// maxListed is how many names a line lists.
const maxListed = 5

// list returns the first texts, at most so many.
func list(texts []string, most int) string {
	text := strings.Join(texts[:min(len(texts), most)], ", ")
	if more := len(texts) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (p *printer) remarks(s *Service, now time.Time) {
	if c := s.Changed; c != nil {
		if c.Time.IsZero() {
			p.Fact("changed", "%s", c.What)
		} else {
			p.Fact("changed", "%s ago: %s", now.Sub(c.Time).Round(time.Second), c.What)
		}
	}
	for _, n := range s.Notices {
		p.PaintedFact(terminal.Yellow, "problem", "%s", n)
	}
	for _, w := range s.Warnings {
		p.PaintedFact(terminal.Yellow, "warning", "%s", w)
	}
	for _, u := range s.Unknown {
		p.Fact("not known", "%s", u)
	}
}

func (p *printer) port(s *Service, port *Port) {
	name := ""
	if port.Name != "" {
		name = fmt.Sprintf("Port %q, ", port.Name)
	}
	p.WriteString("\n")
	p.Line("%s%s %s", name, port.Protocol, port.numbers())
	p.WriteString("\n")
	p.table(port.frontendRows())
	if len(port.Endpoints) == 0 {
		p.Line("  no endpoints")
		return
	}
	p.WriteString("\n")
	rows := port.endpointRows()
	more := len(rows) - 1 - maxEndpoints
	p.table(rows[:min(len(rows), 1+maxEndpoints)])
	if more > 0 {
		p.Line("  and %d more: -o json lists all", more)
	}
}

// maxEndpoints is how many endpoints of a service port are printed.
const maxEndpoints = 200

func (p *Port) numbers() string {
	text := strconv.Itoa(int(p.Port))
	if p.LastPort != 0 {
		text += "-" + strconv.Itoa(int(p.LastPort))
	}
	if p.NodePort != 0 {
		text += fmt.Sprintf(" (NodePort %d)", p.NodePort)
	}
	return text
}

// frontendRows has a column for clients outside of the cluster where any of them is
// treated differently.
func (p *Port) frontendRows() [][]string {
	differ := slices.ContainsFunc(p.Frontends, func(f Frontend) bool { return f.Inside != f.Outside })
	counted := slices.ContainsFunc(p.Frontends, func(f Frontend) bool { return f.Connections != nil })
	other := slices.ContainsFunc(p.Frontends, func(f Frontend) bool { return len(f.AlsoClaimed) > 0 })
	rows := [][]string{row("FRONTEND", "KIND", cell{"CLIENTS ARE", !differ}, cell{"FROM INSIDE", differ}, cell{"FROM OUTSIDE", differ},
		cell{"CONNECTIONS", counted}, cell{"ALSO CLAIMED BY", other})}
	for _, f := range p.Frontends {
		inside, outside := verdictText(f.Inside), verdictText(f.Outside)
		if f.ServedBy != "" {
			inside, outside = "served by "+f.ServedBy, ""
		}
		connections := ""
		if f.Connections != nil {
			connections = strconv.FormatUint(*f.Connections, 10)
		}
		kind := f.Kind
		if f.ConnectsTo != "" {
			kind += " through " + f.ConnectsTo
		}
		rows = append(rows, row(f.Address, kind, cell{inside, !differ}, cell{inside, differ}, cell{outside, differ},
			cell{connections, counted}, cell{list(f.AlsoClaimed, maxListed), other}))
	}
	return rows
}

func verdictText(v string) string {
	return map[string]string{"forward": "forwarded", "reject": "rejected", "drop": "dropped"}[v]
}

func (p *Port) endpointRows() [][]string {
	has := func(f func(*Endpoint) bool) bool {
		return slices.ContainsFunc(p.Endpoints, func(e Endpoint) bool { return f(&e) })
	}
	node, state := has(func(e *Endpoint) bool { return e.Node != "" }), has(func(e *Endpoint) bool { return e.State != "" })
	outside, bound := has(func(e *Endpoint) bool { return e.Outside != nil }), has(func(e *Endpoint) bool { return e.Clients != nil })
	hints := has(func(e *Endpoint) bool { return len(e.Zones)+len(e.Nodes) > 0 })
	checked := has(func(e *Endpoint) bool { return e.Checked != nil })
	left := has(func(e *Endpoint) bool { return e.leftOut() != "" })
	counted := has(func(e *Endpoint) bool { return e.Connections != nil })
	opened := has(func(e *Endpoint) bool { return e.Open != nil })
	rows := [][]string{row("ENDPOINT", cell{"NODE", node}, cell{"HINTS", hints}, cell{"STATE", state}, cell{"CHECK", checked}, cell{"WEIGHT", state}, cell{"SHARE", !outside},
		cell{"FROM INSIDE", outside}, cell{"FROM OUTSIDE", outside}, cell{"CONNECTIONS", counted}, cell{"OPEN", opened}, cell{"CLIENTS", bound}, cell{"LEFT OUT", left})}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		other, clients, connections, open := "", "", "", ""
		if e.Connections != nil {
			connections = strconv.FormatUint(*e.Connections, 10)
		}
		if e.Open != nil {
			open = strconv.Itoa(*e.Open)
		}
		if e.Outside != nil {
			other = e.Outside.text()
		}
		if e.Clients != nil {
			clients = strconv.Itoa(*e.Clients)
		}
		rows = append(rows, row(e.Address, cell{e.Node, node}, cell{e.hints(), hints}, cell{e.State, state}, cell{e.Checked.text(), checked}, cell{e.weight(), state}, cell{e.Inside.text(), !outside},
			cell{e.Inside.text(), outside}, cell{other, outside}, cell{connections, counted}, cell{open, opened}, cell{clients, bound}, cell{e.leftOut(), left}))
	}
	return rows
}

func (c *Checked) text() string {
	switch {
	case c == nil:
		return ""
	case !c.Healthy:
		return "fails"
	case strings.HasPrefix(c.Message, model.NotChecked):
		return c.Message
	case c.Message != "":
		return "passes (last: " + c.Message + ")"
	case c.Since.IsZero():
		return "not checked yet"
	}
	return "passes"
}

func (e *Endpoint) weight() string {
	if e.State == "" {
		return ""
	}
	return strconv.Itoa(e.Weight)
}

func (e *Endpoint) hints() string {
	var out []string
	if len(e.Zones) > 0 {
		out = append(out, "zone "+strings.Join(e.Zones, ", "))
	}
	if len(e.Nodes) > 0 {
		out = append(out, "node "+strings.Join(e.Nodes, ", "))
	}
	return strings.Join(out, "; ")
}

func (s Share) text() string {
	if s.Part == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*s.Part)
}

// leftOut says for whom an endpoint is left out, and why.
func (e *Endpoint) leftOut() string {
	switch {
	case e.Outside == nil || e.Outside.LeftOut == e.Inside.LeftOut:
		return e.Inside.LeftOut
	case e.Inside.LeftOut == "":
		return "from outside: " + e.Outside.LeftOut
	case e.Outside.LeftOut == "":
		return "from inside: " + e.Inside.LeftOut
	}
	return "from inside: " + e.Inside.LeftOut + "; from outside: " + e.Outside.LeftOut
}

// cell is a cell of a column that a table has or not.
type cell struct {
	text string
	has  bool
}

// row returns the cells of a row; others than [cell] are always there.
func row(cells ...any) (out []string) {
	for _, c := range cells {
		switch c := c.(type) {
		case string:
			out = append(out, terminal.Printable(c))
		case cell:
			if c.has {
				out = append(out, terminal.Printable(c.text))
			}
		}
	}
	return out
}

func (p *printer) table(rows [][]string) {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	_ = t.Flush() // a strings.Builder does not fail
	for line := range strings.Lines(text.String()) {
		p.WriteString(strings.TrimRight("  "+line, " \n") + "\n")
	}
}
