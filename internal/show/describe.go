package show

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Description writes a description as text; now is the current time, and paint asks for colours.
func Description(w io.Writer, s *api.Description, now time.Time, paint bool) error {
	p := &describePrinter{terminal.NewPrinter(w, "")}
	p.Words = s.Words()
	p.Colours, p.Width = paint, len(setting.ClientAddresses.Label)
	p.heading(s)
	p.settings(s)
	p.runtime(s.Runtime)
	p.remarks(s, now)
	for i := range s.Ports {
		p.port(s, &s.Ports[i])
	}
	return p.Flush()
}

type describePrinter struct{ *terminal.Printer }

// heading says in one line whether the Service works.
func (p *describePrinter) heading(s *api.Description) {
	node := ""
	if s.Node != "" {
		node = p.Words.Text(" on node ") + s.Node
	}
	if s.Zone != "" {
		node += " (zone " + s.Zone + ")"
	}
	verdict, colour := describeVerdict(s)
	p.Painted(colour, "%s%s: %s", s.Object(), node, verdict)
	p.WriteString("\n")
}

// describeVerdict counts hosts: one that serves several ports counts once.
func describeVerdict(s *api.Description) (text string, colour terminal.Colour) {
	serving, all := make(map[string]bool), make(map[string]bool)
	var failing []string
	for i := range s.Ports {
		port := &s.Ports[i]
		for _, e := range port.Endpoints {
			all[e.Host()] = true
			if e.Inside.Part > 0 || e.Outside != nil && e.Outside.Part > 0 {
				serving[e.Host()] = true
			}
		}
		failing = append(failing, notForwarded(port)...)
	}
	text, colour = s.Words().Sprintf("%d of %d endpoints take connections", len(serving), len(all)), terminal.Yellow
	switch {
	case len(all) == 0:
		text, colour = s.Words().Text("no endpoints"), terminal.Red
	case len(serving) == 0:
		colour = terminal.Red
	case len(serving) == len(all):
		colour = terminal.Green
		text = s.Words().Sprintf("%d endpoints take connections", len(all))
		if len(all) == 1 {
			text = s.Words().Text("1 endpoint takes connections")
		}
	}
	if len(s.RelayFailures) > 0 {
		return "connections are refused: " + strings.Join(s.RelayFailures, "; "), terminal.Red
	}
	if len(failing) > 0 {
		text, colour = text+"; "+strings.Join(failing, "; "), terminal.Red
	}
	return text, colour
}

// notForwarded returns the verdict on connections that are not forwarded, in words.
func notForwarded(p *api.DescribedPort) (out []string) {
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

func (p *describePrinter) settings(s *api.Description) {
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
		where := ""
		if s.AllPorts {
			where = ", at all ports"
		}
		p.Fact(setting.Affinity.Label, "a client stays with its endpoint for %s after its last new connection%s%s",
			setting.ShortTime(time.Duration(s.AffinitySeconds*float64(time.Second))), where, clientsText(s.Clients))
	}
	p.clients(s)
	p.limits(s)
	p.refused(s)
	if s.ClientAddresses != "" {
		p.Fact(setting.ClientAddresses.Label, "%s", setting.ClientAddresses.Told(s.ClientAddresses, p.Words))
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
			p.Fact(row.Label, "%s", row.Told(row.In(&s.Stated), p.Words))
		}
	}
	switch {
	case s.Balance:
	case len(s.Slices) > 0:
		p.Fact("slices", "%s", terminal.List(s.Slices, maxListed))
	case s.From != api.FromKernel:
		p.Fact("slices", "none has the label kubernetes.io/service-name: %s in namespace %s", s.Name, s.Namespace)
	}
}

func clientsText(c *api.Clients) string {
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

func (p *describePrinter) remarks(s *api.Description, now time.Time) {
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

func (p *describePrinter) port(s *api.Description, port *api.DescribedPort) {
	name := ""
	if port.Name != "" {
		name = fmt.Sprintf("Port %q, ", port.Name)
	}
	p.WriteString("\n")
	p.Line("%s%s %s", name, port.Protocol, portNumbers(port))
	p.WriteString("\n")
	p.Table("  ", frontendRows(port, p.Words))
	p.zoneFloors(port)
	if len(port.Endpoints) == 0 {
		p.Line("  no endpoints")
		return
	}
	p.WriteString("\n")
	rows := endpointRows(port)
	more := len(rows) - 1 - maxEndpoints
	p.Table("  ", rows[:min(len(rows), 1+maxEndpoints)])
	if more > 0 {
		p.Line("  and %d more: -o json lists all", more)
	}
}

// zoneFloors says how the zone floor applies, once if it does in the same way in both families.
func (p *describePrinter) zoneFloors(port *api.DescribedPort) {
	all := port.ZoneFloors
	if len(all) == 0 {
		return
	}
	p.WriteString("\n")
	if len(all) == 2 && all[0].Rule == all[1].Rule {
		all = all[:1]
	}
	for _, z := range all {
		family := ""
		if len(all) > 1 {
			family = z.Family + ": "
		}
		p.Line("  %s%s", family, z.Rule)
	}
}

// maxEndpoints is how many endpoints of a service port are printed.
const maxEndpoints = 200

func portNumbers(p *api.DescribedPort) string {
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
func frontendRows(p *api.DescribedPort, in words.Vocabulary) [][]string {
	differ := slices.ContainsFunc(p.Frontends, func(f api.DescribedFrontend) bool { return f.Inside != f.Outside })
	counted := slices.ContainsFunc(p.Frontends, func(f api.DescribedFrontend) bool { return f.Connections != nil })
	other := slices.ContainsFunc(p.Frontends, func(f api.DescribedFrontend) bool { return len(f.AlsoClaimed) > 0 })
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
		kind := in.Text(f.Kind)
		if f.ConnectsTo != "" {
			kind += " through " + f.ConnectsTo
		}
		rows = append(rows, row(f.Address, kind, cell{inside, !differ}, cell{inside, differ}, cell{outside, differ},
			cell{connections, counted}, cell{terminal.List(f.AlsoClaimed, maxListed), other}))
	}
	return rows
}

func verdictText(v string) string {
	return map[string]string{"forward": "forwarded", "reject": "rejected", "drop": "dropped"}[v]
}

func endpointRows(p *api.DescribedPort) [][]string {
	has := func(f func(*api.DescribedEndpoint) bool) bool {
		return slices.ContainsFunc(p.Endpoints, func(e api.DescribedEndpoint) bool { return f(&e) })
	}
	named := has(func(e *api.DescribedEndpoint) bool { return e.Name != "" })
	node, state := has(func(e *api.DescribedEndpoint) bool { return e.Node != "" }), has(func(e *api.DescribedEndpoint) bool { return e.State != "" })
	outside, bound := has(func(e *api.DescribedEndpoint) bool { return e.Outside != nil }), has(func(e *api.DescribedEndpoint) bool { return e.Clients != nil })
	hints := has(func(e *api.DescribedEndpoint) bool { return len(e.Zones)+len(e.Nodes) > 0 })
	checked := has(func(e *api.DescribedEndpoint) bool { return e.Checked != nil })
	left := has(func(e *api.DescribedEndpoint) bool { return leftOut(e) != "" })
	counted := has(func(e *api.DescribedEndpoint) bool { return e.Connections != nil })
	opened := has(func(e *api.DescribedEndpoint) bool { return e.Open != nil })
	failed := has(func(e *api.DescribedEndpoint) bool { return sampledText(e.Sampled) != "" })
	rows := [][]string{row("ENDPOINT", cell{"NAME", named}, cell{"NODE", node}, cell{"HINTS", hints}, cell{"STATE", state}, cell{"CHECK", checked}, cell{"WEIGHT", state}, cell{"SHARE", !outside},
		cell{"FROM INSIDE", outside}, cell{"FROM OUTSIDE", outside}, cell{"CONNECTIONS", counted}, cell{"OPEN", opened}, cell{"CLIENTS", bound}, cell{"FAILED SAMPLES", failed}, cell{"LEFT OUT", left})}
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
			other = shareText(*e.Outside)
		}
		if e.Clients != nil {
			clients = strconv.Itoa(*e.Clients)
		}
		rows = append(rows, row(e.Address, cell{e.Name, named}, cell{e.Node, node}, cell{hintsText(e), hints}, cell{e.State, state}, cell{checkedText(e.Checked), checked}, cell{weightText(e), state}, cell{shareText(e.Inside), !outside},
			cell{shareText(e.Inside), outside}, cell{other, outside}, cell{connections, counted}, cell{open, opened}, cell{clients, bound}, cell{sampledText(e.Sampled), failed}, cell{leftOut(e), left}))
	}
	return rows
}

// sampledText says how many sampled connections have failed; empty: none.
func sampledText(s *api.Sampled) string {
	if s == nil || s.Refused+s.Unanswered == 0 {
		return ""
	}
	all := s.Answered + s.Refused + s.Unanswered
	switch {
	case s.Unanswered == 0:
		return fmt.Sprintf("%d of %d refused", s.Refused, all)
	case s.Refused == 0:
		return fmt.Sprintf("%d of %d unanswered", s.Unanswered, all)
	}
	return fmt.Sprintf("%d refused and %d unanswered of %d", s.Refused, s.Unanswered, all)
}

func checkedText(c *api.Checked) string {
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

func weightText(e *api.DescribedEndpoint) string {
	if e.State == "" {
		return ""
	}
	text := strconv.Itoa(e.Weight)
	if s := e.Starting; s != nil {
		text += fmt.Sprintf(" (%.0f %% now)", 100*s.Part)
	}
	return text
}

func hintsText(e *api.DescribedEndpoint) string {
	var out []string
	if len(e.Zones) > 0 {
		out = append(out, "zone "+strings.Join(e.Zones, ", "))
	}
	if len(e.Nodes) > 0 {
		out = append(out, "node "+strings.Join(e.Nodes, ", "))
	}
	return strings.Join(out, "; ")
}

func shareText(s api.Share) string {
	if s.Part == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*s.Part)
}

// leftOut says for whom an endpoint is left out, and why.
func leftOut(e *api.DescribedEndpoint) string {
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
			out = append(out, c)
		case cell:
			if c.has {
				out = append(out, c.text)
			}
		}
	}
	return out
}

// clients prints who may connect.
func (p *describePrinter) clients(s *api.Description) {
	if len(s.SourceRanges) > 0 {
		p.Fact(setting.AllowedClients.Label, "%s at load balancer IPs", ranges(s.SourceRanges))
	}
	switch {
	case s.AllowedSources == nil:
	case len(s.AllowedSources) == 0:
		p.Fact(setting.AllowedClients.Label, "no client")
	default:
		p.Fact(setting.AllowedClients.Label, "%s%s", ranges(s.AllowedSources), closedFamily(s))
	}
	if len(s.DeniedSources) > 0 {
		p.Fact(setting.DeniedClients.Label, "%s", ranges(s.DeniedSources))
	}
}

// closedFamily returns a remark if a family of the Service has no allowed client.
func closedFamily(s *api.Description) string {
	for _, f := range model.Families {
		admits := slices.ContainsFunc(s.AllowedSources, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f })
		if !admits && hasFamily(s, f) {
			return fmt.Sprintf("; no %s client", f)
		}
	}
	return ""
}

// hasFamily reports whether a frontend has an address of a family.
func hasFamily(s *api.Description, f model.Family) bool {
	return slices.ContainsFunc(s.Ports, func(p api.DescribedPort) bool {
		return slices.ContainsFunc(p.Frontends, func(o api.DescribedFrontend) bool {
			at, err := netip.ParseAddrPort(o.Address)
			return err == nil && model.FamilyOf(at.Addr()) == f
		})
	})
}

// maxRanges is how many ranges a line lists.
const maxRanges = 10

func ranges(all []netip.Prefix) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return terminal.List(texts, maxRanges)
}

func (p *describePrinter) limits(s *api.Description) {
	for _, l := range s.Limits {
		text := l.Admits + " to each address and port"
		if l.Dropped != nil {
			text += fmt.Sprintf("; %d dropped", *l.Dropped)
		}
		if l.Passed > 0 {
			text += fmt.Sprintf("; %d passed without it while it was full", l.Passed)
		}
		p.Fact(setting.Limits.Label, "%s", text)
	}
}

// pings prints who gets answers to echo requests, with the addresses for which that is the
// same.
func (p *describePrinter) pings(s *api.Description) {
	var texts []string
	addresses := make(map[string][]string)
	for _, a := range s.Ping {
		text := pingText(&a, p.Words)
		if addresses[text] == nil {
			texts = append(texts, text)
		}
		addresses[text] = append(addresses[text], a.Address)
	}
	for _, text := range texts {
		p.Fact("ping", "%s: %s", strings.Join(addresses[text], ", "), text)
	}
}

func pingText(p *api.Ping, in words.Vocabulary) string {
	who := "answered by this node"
	switch {
	case !p.Inside:
		who = "not answered, because no endpoint takes connections"
	case !p.Outside:
		who = "answered by this node inside of the cluster only, because it has no endpoint"
	}
	who = in.Text(who)
	if p.DecidedBy != "" {
		who += "; decided by " + p.DecidedBy + ", which has the same address"
	}
	return who
}

// Serving writes one line for people.
func Serving(w io.Writer, s *api.Serving) error {
	text := fmt.Sprintf("%s serves: %d of %s usable", s.Service, s.Usable, terminal.Count(s.Servers, "server"))
	switch {
	case s.Servers == 0:
		text = s.Service + " does not serve: it has no servers"
	case !s.Serves:
		text = fmt.Sprintf("%s does not serve: 0 of %s usable", s.Service, terminal.Count(s.Servers, "server"))
	}
	if s.Reason != "" {
		text += "; " + s.Reason
	}
	_, err := fmt.Fprintln(w, terminal.Printable(text))
	return err
}
