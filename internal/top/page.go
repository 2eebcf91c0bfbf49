package top

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Page is a live view of a page whose lists the daemon writes as text. It implements [tea.Model].
type Page struct {
	Client *api.Client
	Path   string
	Filter string

	width, height  int
	lines          []string // of the last answer
	err            error    // of the last question
	asked          int      // number of the last question; earlier answers are dropped
	byName, paused bool
}

// page is the answer to a question of a number.
type page struct {
	asked int
	text  []byte
	err   error
}

// lists and listLines are how many lists a page has, and how many lines each of them has besides its rows; fixedLines is
// the number of other lines.
const lists, listLines, fixedLines = 3, 4, 2

// PageQuery returns the path of a page with the parameters that it understands.
func PageQuery(path, filter string, rows int, byName bool) string {
	q := url.Values{"limit": {fmt.Sprint(rows)}}
	if filter != "" {
		q.Set("filter", filter)
	}
	if byName {
		q.Set("sort", "name")
	}
	return path + "?" + q.Encode()
}

// Init implements [tea.Model]. The first question follows the size of the terminal.
func (p *Page) Init() tea.Cmd { return nil }

func (p *Page) request() tea.Cmd {
	p.asked++
	asked, path := p.asked, PageQuery(p.Path, p.Filter, max(1, (p.height-fixedLines)/lists-listLines), p.byName)+"&text"
	return func() tea.Msg {
		text, err := p.Client.Page(context.Background(), path)
		return page{asked, text, err}
	}
}

// Update implements [tea.Model].
func (p *Page) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch v := message.(type) {
	case tea.WindowSizeMsg:
		p.width, p.height = v.Width, v.Height
		return p, p.request()
	case tick:
		if v.asked == p.asked && !p.paused {
			return p, p.request()
		}
	case page:
		if v.asked != p.asked {
			return p, nil
		}
		if p.err = v.err; v.err == nil {
			p.lines = Lines(v.text)
		}
		return p, tea.Tick(period, func(time.Time) tea.Msg { return tick{v.asked} })
	case tea.KeyPressMsg:
		return p, p.handleKey(v.String())
	}
	return p, nil
}

func (p *Page) handleKey(name string) tea.Cmd {
	switch name {
	case "q", "ctrl+c":
		return tea.Quit
	case "s":
		p.byName = !p.byName
		return p.request()
	case "p", "space":
		if p.paused = !p.paused; !p.paused {
			return p.request()
		}
	}
	return nil
}

// View implements [tea.Model].
func (p *Page) View() tea.View {
	v := tea.NewView(p.Text())
	v.AltScreen, v.WindowTitle = true, "nftproxy top"
	return v
}

// Text returns the content of the terminal: as many lines as it has, none wider than it.
func (p *Page) Text() string {
	lines := p.lines
	if p.err != nil {
		lines = append([]string{bad.Styled("! " + terminal.Printable(p.err.Error()))}, lines...)
	}
	lines = slices.Clone(lines[:max(0, min(len(lines), p.height-1))])
	for len(lines) < p.height-1 {
		lines = append(lines, "")
	}
	foot := faint.Styled("q: quit  s: sort  p: pause")
	if p.paused {
		foot = warning.Styled("PAUSED") + "  " + foot
	}
	return FitLines(append(lines, foot), p.width)
}

// Lines returns the lines of a text that another program has answered, without control characters of terminals.
func Lines(text []byte) (lines []string) {
	for line := range strings.Lines(string(text)) {
		lines = append(lines, terminal.Printable(strings.TrimRight(line, "\n")))
	}
	return lines
}

// FitLines joins lines, each of them cut to a width.
func FitLines(lines []string, width int) string {
	for i, l := range lines {
		lines[i] = strings.TrimRight(ansi.Truncate(l, width, "…"), " ")
	}
	return strings.Join(lines, "\n")
}
