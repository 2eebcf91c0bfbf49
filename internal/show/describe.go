package show

import (
	"cmp"
	"fmt"
	"io"
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
	verdict := s.Verdict()
	p.Painted(verdictColours[verdict.State], "%s%s: %s", s.Object(), node, verdict.Text)
	p.WriteString("\n")
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
			model.DurationText(time.Duration(s.AffinitySeconds*float64(time.Second))), where, clientsText(s.Clients))
	}
	p.clients(s)
	p.limits(s)
	p.refused(s)
	if s.ClientAddresses != "" {
		p.Fact(setting.ClientAddresses.Label, "%s", setting.ClientAddresses.Told(s.ClientAddresses, p.Words))
	}
	p.pings(s)
	if h := s.HealthCheck; h != nil {
		p.Fact("health", "port %d answers for the ready endpoints on this node: %s", h.Port, localEndpoints(h.Endpoints))
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

func (p *describePrinter) clients(s *api.Description) {
	if len(s.SourceRanges) > 0 {
		p.Fact(setting.AllowedClients.Label, "%s at load balancer IPs", terminal.List(s.SourceRanges, maxRanges))
	}
	switch {
	case s.AllowedSources == nil:
	case len(s.AllowedSources) == 0:
		p.Fact(setting.AllowedClients.Label, "no client")
	default:
		p.Fact(setting.AllowedClients.Label, "%s%s", terminal.List(s.AllowedSources, maxRanges), closedFamily(s))
	}
	if len(s.DeniedSources) > 0 {
		p.Fact(setting.DeniedClients.Label, "%s", terminal.List(s.DeniedSources, maxRanges))
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

func hasFamily(s *api.Description, f model.Family) bool {
	return slices.ContainsFunc(s.Ports, func(p api.DescribedPort) bool {
		return slices.ContainsFunc(p.Frontends, func(o api.DescribedFrontend) bool {
			at, err := netip.ParseAddrPort(o.Address)
			return err == nil && model.FamilyOf(at.Addr()) == f
		})
	})
}

const maxRanges = 10

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
