package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

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

// alignRight returns a text of at least a width, with the text at the end.
func alignRight(s string, width int) string {
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(s))) + s
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
func (m *Model) count(n int, what string) string { return count(n, what, m.now.Words) }

func count(n int, what string, in words.Vocabulary) string {
	if n != 1 {
		what += "s"
	}
	return groupThousands(uint64(max(n, 0))) + " " + in.Text(what)
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

// drawGraph returns the last values as a line of bars.
func (m *Model) drawGraph(values []float64, width int) string {
	steps := []rune("▁▂▃▄▅▆▇█")
	if m.config.ASCII {
		steps = []rune("_.:-=+*#")
	}
	values = values[max(0, len(values)-width):]
	largest := 0.0
	for _, v := range values {
		largest = max(largest, v)
	}
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

// printableText returns a text from outside without an effect on the terminal.
func printableText(s string) string { return terminal.Printable(s) }
