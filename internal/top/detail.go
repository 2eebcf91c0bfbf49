package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

func (m *Model) detailLines() []string {
	d, title := m.now.Detail, bold.Styled(terminal.Printable(m.detail))
	switch {
	case m.described != m.detail:
		return []string{title, "", "  asking"}
	case d == nil && m.now.LastSuccess.IsZero():
		return []string{title, "", m.now.Words.Text("  this node has not synced yet")}
	case d == nil:
		return []string{title, "", m.now.Words.Text("  this node serves no Service of that name")}
	}
	rate, known := m.rates.Services[d.ServiceName()]
	lines := []string{title + fmt.Sprintf("  %s connections/s, %s in all", perSecond(rate, known), counterText(d.Connections))}
	for i := range d.Ports {
		lines = append(lines, m.portLines(&d.Ports[i])...)
	}
	lines = append(lines, m.failingLines(d)...)
	if m.now.Counted && !endpointsCounted(d) {
		lines = append(lines, "", faint.Styled(words.Of(d.Balance).Text(hintEndpoints)))
	}
	return lines
}

func (m *Model) failingLines(d *api.LiveDetail) []string {
	if len(d.Failing) == 0 {
		return nil
	}
	lines := []string{"", bold.Styled(fmt.Sprintf("  %-32s %-17s %s", "failing health checks", "SINCE", "ERROR"))}
	for _, f := range d.Failing {
		lines = append(lines, fmt.Sprintf("    %s %s %s", fitText(terminal.Printable(f.Address), 30), fitText(ageText(m.now.Time.Sub(f.Since))+" ago", 17), terminal.Printable(f.Message)))
	}
	if more := d.FailingCount - len(d.Failing); more > 0 {
		lines = append(lines, fmt.Sprintf("    and %d more", more))
	}
	return lines
}

const hintEndpoints = "  connections of each endpoint are counted with --endpoint-metrics"

func (m *Model) portLines(p *api.LivePort) []string {
	in := words.Of(p.Balance)
	name := p.Protocol
	if p.Port != "" {
		name = p.Port + " (" + p.Protocol + ")"
	}
	lines := []string{"", bold.Styled(fmt.Sprintf("  %-32s %-17s %10s %14s  %s", "port "+terminal.Printable(name), "KIND", "CONN/S", "CONNECTIONS", in.Text("ENDPOINTS")))}
	for i := range p.Frontends {
		f := &p.Frontends[i]
		rate, known := m.rates.Frontends[FrontendKey(p.Protocol, f.Address)]
		lines = append(lines, fmt.Sprintf("  %s %s %10s %14s  %s", fitText(terminal.Printable(f.Address), 32), fitText(terminal.Printable(in.Text(f.Kind)), 17),
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
		line := fmt.Sprintf("    %s %s", fitText("-> "+terminal.Printable(e.Address), 30), fitText(where, 17))
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

const rampWidth = 10

func (m *Model) startingText(s *api.Starting) string {
	return fmt.Sprintf("%s %.0f %%", bars.Styled(fitText(m.drawBar(s.Part, 1, rampWidth), rampWidth)), 100*s.Part)
}

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
	return terminal.Printable(d.Verdict) + "s"
}

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

// compare orders two Services; ties are by name.
func (m *Model) compare(a, b *api.LiveService) int {
	name := a.ServiceName().Compare(b.ServiceName())
	switch m.order {
	case byRate:
		return cmp.Or(cmp.Compare(m.rates.Services[b.ServiceName()], m.rates.Services[a.ServiceName()]), compareCounts(a, b), name)
	case byConnections:
		return cmp.Or(compareCounts(a, b), name)
	case byProblem:
		return cmp.Or(cmp.Compare(b.Unserved, a.Unserved), name)
	}
	return name
}

func compareCounts(a, b *api.LiveService) int {
	if a.Connections == nil || b.Connections == nil {
		return 0
	}
	return cmp.Compare(*b.Connections, *a.Connections)
}

// Styles. The program removes colours where NO_COLOR or the terminal asks for that.
var (
	bold     = ansi.NewStyle().Bold()
	faint    = ansi.NewStyle().Faint()
	good     = ansi.NewStyle().ForegroundColor(ansi.Green)
	bad      = ansi.NewStyle().Bold().ForegroundColor(ansi.Red)
	warning  = ansi.NewStyle().ForegroundColor(ansi.Yellow)
	bars     = ansi.NewStyle().ForegroundColor(ansi.Cyan)
	selected = ansi.NewStyle().Reverse(true)
)

// fitText returns a text cut or filled to a width.
func fitText(s string, width int) string {
	s = ansi.Truncate(s, max(width, 0), "…")
	return s + strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
}

// perSecond returns a rate for people; "-" without one.
func perSecond(rate float64, known bool) string {
	switch {
	case !known:
		return "-"
	case rate > 0 && rate < 0.1:
		return "<0.1"
	case rate < 10 && rate != 0:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return groupThousands(uint64(rate + 0.5))
}

// groupThousands returns for example "1,234,567".
func groupThousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count returns a number with a noun, in the words of the sample.
func (m *Model) count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return groupThousands(uint64(max(n, 0))) + " " + m.now.Words.Text(what)
}

// counterText returns a counter; "-" without one.
func counterText(n *uint64) string {
	if n == nil {
		return "-"
	}
	return groupThousands(*n)
}

// secondsText returns a short duration such as "0.3 ms".
func secondsText(s float64) string {
	switch {
	case s < 0.001:
		return fmt.Sprintf("%.0f µs", s*1e6)
	case s < 0.1:
		return fmt.Sprintf("%.1f ms", s*1e3)
	case s < 1:
		return fmt.Sprintf("%.0f ms", s*1e3)
	}
	return fmt.Sprintf("%.1f s", s)
}

// ageText returns a time span in its largest unit, such as "3h".
func ageText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", max(0, d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// drawBar returns a bar for a part of the largest value.
func (m *Model) drawBar(value, largest float64, width int) string {
	if width <= 0 || largest <= 0 || value <= 0 {
		return ""
	}
	if m.config.ASCII {
		return strings.Repeat("#", max(1, int(value/largest*float64(width))))
	}
	eighths := max(1, int(value/largest*float64(width)*8+0.5))
	out := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		out += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return out
}

func (m *Model) drawGraph(values []float64, width int) string {
	steps := []rune("▁▂▃▄▅▆▇█")
	if m.config.ASCII {
		steps = []rune("_.:-=+*#")
	}
	values = values[max(0, len(values)-width):]
	largest := slices.Max(append([]float64{0}, values...))
	var b strings.Builder
	for _, v := range values {
		i := 0
		if largest > 0 {
			i = int(v / largest * float64(len(steps)-1))
		}
		b.WriteRune(steps[i])
	}
	return b.String()
}
