package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

const (
	minWidth, minHeight = 40, 10
	maxProblems         = 3 // that are shown above the list
	maxChanges          = 8 // that are shown below the list
)

// View implements [tea.Model].
func (m *Model) View() tea.View {
	v := tea.NewView(m.Text())
	v.AltScreen, v.WindowTitle = true, "nftproxy top"
	return v
}

// Text returns the content of the terminal: as many lines as it has, none wider than it.
func (m *Model) Text() string {
	if m.width < minWidth || m.height < minHeight {
		return ansi.Truncate(fmt.Sprintf("nftproxy top needs %d×%d characters (q quits)", minWidth, minHeight), max(m.width, 1), "")
	}
	var lines []string
	switch {
	case m.help:
		lines = m.helpLines()
	case m.now == nil:
		lines = m.waitingLines()
	case m.detail != "":
		lines = append(m.headLines(), m.detailLines()...)
	default:
		lines = append(m.headLines(), m.listLines()...)
	}
	lines = lines[:min(len(lines), m.height-1)]
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines, m.footLine())
	for i, l := range lines {
		lines[i] = strings.TrimRight(ansi.Truncate(l, m.width, "…"), " ")
	}
	return m.replaceUndisplayable(strings.Join(lines, "\n"))
}

// replaceUndisplayable replaces our own characters that an ASCII terminal does not show.
func (m *Model) replaceUndisplayable(text string) string {
	if !m.config.ASCII {
		return text
	}
	return strings.NewReplacer("…", "~", "µ", "u", "×", "x").Replace(text)
}

func (m *Model) waitingLines() []string {
	if m.err == nil {
		return []string{"", "  asking " + m.config.Address}
	}
	return append([]string{""}, strings.Split(ansi.Wrap("  "+bad.Styled(terminal.Printable(m.err.Error()))+"\n\n  "+hintNoDaemon, m.width, ""), "\n")...)
}

const hintNoDaemon = `Start "nftproxy run", or name the address of a running one with --metrics-bind-address.`

func (m *Model) headLines() []string {
	s := m.now
	title := bold.Styled("nftproxy") + " " + terminal.Printable(s.Version)
	if s.Node != "" {
		title += " on " + bold.Styled(terminal.Printable(s.Node))
	}
	title += faint.Styled("  up "+ageText(s.Time.Sub(s.Started))) + "  " + terminal.Printable(s.Source)
	clock := s.Time.Local().Format("15:04:05")
	lines := []string{
		fitText(title, m.width-len(clock)-1) + " " + clock,
		m.healthLine(),
		m.trafficLine(),
		m.latencyLine(),
	}
	if o := s.Observe; o != nil {
		lines = append(lines, m.observedLine(o))
	}
	return append(append(lines, m.problemLines()...), "")
}

func (m *Model) healthLine() string {
	s, t := m.now, &m.now.Totals
	verdict := good.Styled("healthy")
	if !s.Healthy {
		verdict = bad.Styled("NOT HEALTHY")
	}
	text := fmt.Sprintf("%s  %s, %s, %s", verdict, m.count(t.Services, "Service"), m.count(t.Frontends, "frontend"), m.count(t.Endpoints, "endpoint"))
	if t.Unserved > 0 {
		text += "  " + warning.Styled(m.count(t.Unserved, "frontend")+s.Words.Text(" without endpoints"))
	}
	if !s.PendingSince.IsZero() {
		text += "  " + warning.Styled("changes pending for "+ageText(s.Time.Sub(s.PendingSince)))
	}
	return text
}

func (m *Model) trafficLine() string {
	if !m.now.Counted {
		return warning.Styled(hintNotCounted)
	}
	text := bold.Styled(perSecond(m.rates.Total, m.rates.Known)) + " connections/s  "
	return text + bars.Styled(m.drawGraph(m.history, min(60, m.width-ansi.StringWidth(text))))
}

const hintNotCounted = "connections are not counted: start nftproxy with --service-metrics"

func (m *Model) latencyLine() string {
	s := &m.now.Syncs
	if s.Total == 0 {
		return "no sync yet"
	}
	text := m.count(int(s.Total), "sync")
	if s.Failed > 0 {
		text += ", " + bad.Styled(groupThousands(s.Failed)+" failed")
	}
	return text + fmt.Sprintf("  last %s  p50 %s  p90 %s  p99 %s  max %s", secondsText(s.Last), secondsText(s.P50), secondsText(s.P90), secondsText(s.P99), secondsText(s.Max))
}

// observedLine returns how many connections were refused, and of observed ones how many failed, and
// how many were served.
func (m *Model) observedLine(o *api.Observing) string {
	before, known := &api.Observing{}, false
	if b := m.before; b != nil && b.Observe != nil && b.Instance == m.now.Instance && m.now.Uptime > b.Uptime {
		before, known = b.Observe, true
	}
	rate := func(now, before uint64) string {
		return perSecond(float64(now-before)/(m.now.Uptime-m.uptimeBefore()), known)
	}
	text := "observed  refused " + rate(o.Refused, before.Refused) + "/s"
	if o.Failed+o.Served > 0 {
		text += ", failed " + rate(o.Failed, before.Failed) + "/s, served " + rate(o.Served, before.Served) + "/s"
	}
	text += ", " + groupThousands(o.Events) + " in all"
	if o.Sampled > 0 {
		text += fmt.Sprintf(", %s of %s failed", groupThousands(o.SampledFailed), m.count(int(o.Sampled), "sample"))
	}
	if o.Lost > 0 {
		text += ", " + warning.Styled(groupThousands(o.Lost)+" lost")
	}
	return text + faint.Styled("  nftproxy observe -f shows them")
}

// uptimeBefore returns the age of the process at the sample before this one, or zero.
func (m *Model) uptimeBefore() float64 {
	if m.before == nil {
		return 0
	}
	return m.before.Uptime
}

func (m *Model) problemLines() (lines []string) {
	s := m.now
	if m.err != nil {
		lines = append(lines, bad.Styled("! "+terminal.Printable(m.err.Error())))
	}
	if e := s.SourceError; e != nil {
		lines = append(lines, bad.Styled(fmt.Sprintf("! source unusable for %s: %s", ageText(s.Time.Sub(e.Since)), terminal.Printable(e.Message))))
	}
	shown := min(len(s.Problems), maxProblems, max(1, (m.height-minHeight)/4))
	for _, p := range s.Problems[:shown] {
		lines = append(lines, warning.Styled("! "+terminal.Printable(p.Object.String()+": "+p.Message)))
	}
	if rest := s.ProblemCount - shown; rest > 0 {
		lines = append(lines, warning.Styled(fmt.Sprintf("! and %s (nftproxy status)", m.count(rest, "more problem"))))
	}
	return lines
}

func (m *Model) changesHeight() int {
	free := m.height - len(m.headLines()) - 1 // of the foot
	if free < 12 {
		return 0
	}
	return min(len(m.now.Changes), maxChanges, free/3)
}

func (m *Model) countRows() int {
	if m.now == nil {
		return 1
	}
	n := m.height - len(m.headLines()) - 2 // heading and foot
	if c := m.changesHeight(); c > 0 {
		n -= c + 2
	}
	return max(n, 1)
}

func (m *Model) listLines() []string {
	all, rows := m.sortedServices(), m.countRows()
	at := m.index(all)
	m.first = min(max(m.first, at-rows+1), at)
	m.first = max(0, min(m.first, len(all)-rows))
	lines := m.tableLines(all[m.first:min(len(all), m.first+rows)], all, at-m.first)
	if len(all) == 0 && m.filter != "" {
		lines = append(lines, m.now.Words.Text("  no Service matches ")+terminal.Printable(m.filter))
	} else if len(all) == 0 {
		lines = append(lines, m.now.Words.Text("  no Services"))
	}
	for len(lines) < rows+1 {
		lines = append(lines, "")
	}
	if n := m.changesHeight(); n > 0 {
		lines = append(append(lines, "", bold.Styled("CHANGES")), m.changeLines(n)...)
	}
	return lines
}

// columns are the widths of the list of Services; zero: the column is missing.
type columns struct{ name, bar, connections int }

const numbers = 12 // width of a column of numbers

func (m *Model) layoutColumns(all []api.LiveService) columns {
	c := columns{name: 20}
	for i := range all {
		c.name = max(c.name, ansi.StringWidth(terminal.Printable(all[i].ServiceName().String())))
	}
	rest := m.width - 2 - 2*(numbers+1)
	if m.width >= 72 {
		c.bar, c.connections = min(max(12, m.width/5), 40), numbers
		rest -= c.bar + 2 + c.connections + 1
	}
	c.name = min(c.name, rest)
	return c
}

// rowParts returns the three parts of a line; the middle one is the bar.
func (c columns) rowParts(marker, name, rate, bar, connections, endpoints string) [3]string {
	out := [3]string{fmt.Sprintf("%s%s %*s ", marker, fitText(name, c.name), numbers, rate), "", fmt.Sprintf("%*s", numbers, endpoints)}
	if c.bar > 0 {
		out[1] = " " + fitText(bar, c.bar) + " "
		out[2] = fmt.Sprintf("%*s", c.connections, connections) + out[2]
	}
	return out
}

// tableLines returns the heading and the rows of some Services; one of them is selected.
func (m *Model) tableLines(shown, all []api.LiveService, at int) []string {
	c, largest := m.layoutColumns(all), 0.0
	for i := range all {
		largest = max(largest, m.rates.Services[all[i].ServiceName()])
	}
	heading := c.rowParts("  ", m.now.Words.Text("SERVICE"), "CONN/S", "", "CONNECTIONS", m.now.Words.Text("ENDPOINTS"))
	lines := []string{bold.Styled(heading[0] + heading[1] + heading[2])}
	for i := range shown {
		s, marker := &shown[i], "  "
		if i == at {
			marker = "> "
		}
		rate, known := m.rates.Services[s.ServiceName()]
		r := c.rowParts(marker, terminal.Printable(s.ServiceName().String()), perSecond(rate, known), m.drawBar(rate, largest, c.bar), counterText(s.Connections), endpointsText(s))
		if i == at {
			lines = append(lines, selected.Styled(r[0]+r[1]+r[2]))
		} else {
			lines = append(lines, r[0]+bars.Styled(r[1])+r[2])
		}
	}
	return lines
}

// endpointsText returns the number of endpoints of a Service, with a mark if some
// frontends have none, or the word relay.
func endpointsText(s *api.LiveService) string {
	switch {
	case s.Unserved > 0:
		return fmt.Sprintf("%d !", s.Endpoints)
	case s.Relayed:
		return "relay " + groupThousands(uint64(s.Endpoints))
	}
	return groupThousands(uint64(s.Endpoints))
}

func (m *Model) changeLines(n int) (lines []string) {
	for i := range m.now.Changes[:n] {
		c := &m.now.Changes[i]
		text := fmt.Sprintf("  %5s ago  %-6s  ", ageText(m.now.Time.Sub(c.Time)), terminal.Printable(c.Cause))
		if c.Error != "" {
			lines = append(lines, text+bad.Styled("failed: "+terminal.Printable(c.Error)))
			continue
		}
		text += fmt.Sprintf("+%d ~%d -%d  %s", c.Added, c.Changed, c.Deleted, secondsText(c.Seconds))
		lines = append(lines, fitText(text, 42)+"  "+servicesOf(c))
	}
	return lines
}

func servicesOf(c *api.Change) string {
	text := terminal.Printable(strings.Join(c.Services, " "))
	if c.More > 0 {
		text += fmt.Sprintf(" and %d more", c.More)
	}
	return text
}

func (m *Model) footLine() string {
	switch {
	case m.editing:
		return bold.Styled("filter: ") + terminal.Printable(m.filter) + "_  " + faint.Styled("enter: done  esc: cancel")
	case m.help:
		return faint.Styled("?: back  q: quit")
	case m.now == nil:
		return faint.Styled("q: quit")
	}
	var notes []string
	if m.paused {
		notes = append(notes, warning.Styled("PAUSED"))
	}
	if m.detail != "" {
		return strings.Join(append(notes, faint.Styled("esc: back  p: pause  ?: help  q: quit")), "  ")
	}
	if m.filter != "" {
		notes = append(notes, bold.Styled("filter: "+terminal.Printable(m.filter)))
	}
	if n := len(m.now.Services); n < m.now.Matching {
		notes = append(notes, fmt.Sprintf("%d of %s", n, m.count(m.now.Matching, "Service")))
	}
	notes = append(notes, faint.Styled("by "+m.order.String()+"  q: quit  ?: help  /: filter  s: sort  enter: details  p: pause"))
	return strings.Join(notes, "  ")
}
