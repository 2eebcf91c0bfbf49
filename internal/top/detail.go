package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/words"
)

// detailLines shows one Service.
func (m *Model) detailLines() []string {
	d := m.now.Detail
	switch {
	case m.described != m.detail:
		return []string{bold.Styled(printableText(m.detail)), "", "  asking"}
	case d == nil && m.now.LastSuccess.IsZero():
		return []string{bold.Styled(printableText(m.detail)), "", m.now.Words.Text("  this node has not synced yet")}
	case d == nil:
		return []string{bold.Styled(printableText(m.detail)), "", m.now.Words.Text("  this node serves no Service of that name")}
	}
	rate, known := m.rates.Services[d.ServiceName()]
	lines := []string{bold.Styled(printableText(m.detail)) + fmt.Sprintf("  %s connections/s, %s in all", perSecond(rate, known), counterText(d.Connections))}
	for i := range d.Ports {
		lines = append(lines, m.portLines(&d.Ports[i])...)
	}
	lines = append(lines, m.failingLines(d)...)
	if m.now.Counted && !endpointsCounted(d) {
		lines = append(lines, "", faint.Styled(words.Of(d.Balance).Text(hintEndpoints)))
	}
	return lines
}

// failingLines shows the endpoints that fail their health check.
func (m *Model) failingLines(d *api.LiveDetail) []string {
	if len(d.Failing) == 0 {
		return nil
	}
	lines := []string{"", bold.Styled(fmt.Sprintf("  %-32s %-17s %s", "failing health checks", "SINCE", "ERROR"))}
	for _, f := range d.Failing {
		lines = append(lines, fmt.Sprintf("    %s %s %s", fitText(printableText(f.Address), 30), fitText(ageText(m.now.Time.Sub(f.Since))+" ago", 17), printableText(f.Message)))
	}
	if more := d.FailingCount - len(d.Failing); more > 0 {
		lines = append(lines, fmt.Sprintf("    and %d more", more))
	}
	return lines
}

// hintEndpoints is shown where endpoints are not counted.
const hintEndpoints = "  connections of each endpoint are counted with --endpoint-metrics"

// portLines shows a service port: its frontends, then its endpoints.
func (m *Model) portLines(p *api.LivePort) []string {
	in := words.Of(p.Balance)
	name := p.Protocol
	if p.Port != "" {
		name = p.Port + " (" + p.Protocol + ")"
	}
	lines := []string{"", bold.Styled(fmt.Sprintf("  %-32s %-17s %10s %14s  %s", "port "+printableText(name), "KIND", "CONN/S", "CONNECTIONS", in.Text("ENDPOINTS")))}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		rate, known := m.rates.Frontends[FrontendKey(p.Protocol, f.Address)]
		lines = append(lines, fmt.Sprintf("  %s %s %10s %14s  %s", fitText(printableText(f.Address), 32), fitText(printableText(in.Text(f.Kind)), 17),
			perSecond(rate, known), counterText(f.Connections), decisionsText(f)))
	}
	for i := range p.EndpointList {
		e := &p.EndpointList[i]
		where := ""
		if e.Local {
			where = in.Text("this node")
		}
		if e.Starting != nil {
			where = m.startingText(e.Starting)
		}
		line := fmt.Sprintf("    %s %s", fitText("-> "+printableText(e.Address), 30), fitText(where, 17))
		if e.Connections != nil {
			rate, known := m.rates.Endpoints[EndpointKey(p, e)]
			line += fmt.Sprintf(" %10s %14s", perSecond(rate, known), counterText(e.Connections))
		}
		if s := e.Starting; s != nil {
			line += "  starts slowly, all in " + ageText(s.Full.Sub(m.now.Time))
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// rampWidth is how many characters a whole weight has.
const rampWidth = 10

// startingText shows what an endpoint that starts slowly has of its weight.
func (m *Model) startingText(s *api.Starting) string {
	return fmt.Sprintf("%s %.0f %%", bars.Styled(fitText(m.drawBar(s.Part, 1, rampWidth), rampWidth)), 100*s.Part)
}

// decisionsText returns the decisions over connections to a frontend.
func decisionsText(f *api.Frontend) string {
	text := decisionText(f.Decision)
	if f.Outside != nil && *f.Outside != f.Decision {
		text += ", outside " + decisionText(*f.Outside)
	}
	return text
}

func decisionText(d api.Decision) string {
	if d.Verdict == "forward" {
		return fmt.Sprint(d.Endpoints)
	}
	return printableText(d.Verdict) + "s"
}

// helpLines explain keys and columns.
func (m *Model) helpLines() []string {
	text := `nftproxy top: what this node does at present

  up, down, j, k     select a Service; page up and down, home, end
  enter              show its ports, frontends and endpoints
  esc                back; in the list, remove the filter
  /                  filter by a part of NAMESPACE/NAME
  s                  sort by rate, total, name, or frontends without endpoints
  p                  pause and continue
  ?                  this help
  q                  quit

  CONN/S             new connections per second, including rejected and dropped ones
  CONNECTIONS        new connections since nftproxy started
  ENDPOINTS          distinct endpoints that get connections; !: some frontend has none
  refused            events of refused connections, which are samples (--observe)
  CHANGES            added (+), changed (~) and deleted (-) objects of the rules, and the
                     duration of the sync`
	in := words.Kubernetes
	if m.now != nil {
		in = m.now.Words
	}
	return strings.Split(in.Text(text), "\n")
}

func endpointsCounted(d *api.LiveDetail) bool {
	return slices.ContainsFunc(d.Ports, func(p api.LivePort) bool {
		return len(p.EndpointList) == 0 || slices.ContainsFunc(p.EndpointList, func(e api.LiveEndpoint) bool { return e.Connections != nil })
	})
}
