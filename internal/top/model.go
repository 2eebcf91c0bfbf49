// Package top is a live view of a running daemon in the terminal.
package top

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

const (
	period     = time.Second // between two samples
	limit      = 500         // Services in a sample
	maxHistory = 120         // total rates in the graph
	maxFilter  = 100         // characters
)

// Ask returns a sample of the daemon.
type Ask func(context.Context, api.LiveQuery) (*api.Sample, error)

// Config has the sources and settings of a view.
type Config struct {
	Ask     Ask
	Address string // of the daemon, for messages
	ASCII   bool   // the terminal shows no other characters
	Colours bool   // text of [Once] has colours
	// Service is the "namespace/name" of the Service whose details are shown first;
	// empty: the list.
	Service string
	Filter  string // of the list at first
}

// Model is the state of the view. It implements [tea.Model]: Update returns the next
// state, and View draws it.
type Model struct {
	config        Config
	width, height int

	before, now *api.Sample // before has an earlier reading
	rates       Rates
	history     []float64 // total rates, oldest first
	described   string    // the Service that now has the detail of
	err         error     // of the last question
	asked       int       // number of the last question; earlier answers are dropped

	order    order
	filter   string
	editing  bool   // keys change the filter
	previous string // the filter before
	selected model.ServiceName
	first    int    // row that is shown first
	detail   string // "namespace/name" of the Service that is shown; empty: the list
	paused   bool
	help     bool
}

// New returns a view that has no sample yet.
func New(c Config) *Model {
	return &Model{config: c, detail: c.Service, filter: c.Filter, width: 80, height: 24}
}

type (
	// answer is the answer to a question of a number.
	answer struct {
		asked   int
		service string // whose detail was asked for
		sample  *api.Sample
		err     error
	}
	// tick asks again, if that question is still the last one.
	tick struct{ asked int }
)

// Init implements [tea.Model].
func (m *Model) Init() tea.Cmd { return m.requestSample() }

func (m *Model) requestSample() tea.Cmd {
	m.asked++
	asked, q := m.asked, api.LiveQuery{Limit: limit, Filter: m.filter, Service: m.detail}
	return func() tea.Msg {
		s, err := m.config.Ask(context.Background(), q)
		return answer{asked, q.Service, s, err}
	}
}

// Update implements [tea.Model].
func (m *Model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch v := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = v.Width, v.Height
	case tick:
		if v.asked == m.asked && !m.paused {
			return m, m.requestSample()
		}
	case answer:
		if v.asked != m.asked {
			return m, nil
		}
		m.storeAnswer(v)
		return m, tea.Tick(period, func(time.Time) tea.Msg { return tick{v.asked} })
	case tea.KeyPressMsg:
		if m.editing {
			return m, m.editFilter(v)
		}
		return m, m.handleKey(v.String())
	}
	return m, nil
}

// storeAnswer stores an answer. The rates are those since the last different reading.
func (m *Model) storeAnswer(a answer) {
	if m.err = a.err; a.err != nil {
		return
	}
	another := m.now == nil || m.now.Instance != a.sample.Instance || m.now.Uptime != a.sample.Uptime
	if another {
		m.before = m.now
	}
	m.now, m.described = a.sample, a.service
	m.rates = RatesOf(m.before, m.now)
	if another && m.rates.Known {
		m.history = append(m.history, m.rates.Total)
		m.history = m.history[max(0, len(m.history)-maxHistory):]
	}
}

func (m *Model) handleKey(name string) tea.Cmd {
	switch name {
	case "q", "ctrl+c":
		return tea.Quit
	case "?", "h":
		m.help = !m.help
	case "p", "space":
		m.paused = !m.paused
		if !m.paused {
			return m.requestSample()
		}
	case "esc", "backspace", "left":
		return m.goBack()
	default:
		if m.help || m.detail != "" {
			return nil
		}
		return m.listKey(name)
	}
	return nil
}

// goBack leaves the view above the list, or removes the filter.
func (m *Model) goBack() tea.Cmd {
	switch {
	case m.help:
		m.help = false
	case m.detail != "":
		m.detail = ""
	case m.filter != "":
		m.filter = ""
		return m.requestSample()
	}
	return nil
}

func (m *Model) listKey(name string) tea.Cmd {
	switch name {
	case "s":
		m.order = (m.order + 1) % orders
	case "/":
		m.editing, m.previous = true, m.filter
	case "up", "k":
		m.moveSelection(-1)
	case "down", "j":
		m.moveSelection(1)
	case "pgup":
		m.moveSelection(-m.countRows())
	case "pgdown":
		m.moveSelection(m.countRows())
	case "home", "g":
		m.moveSelection(-limit)
	case "end", "G":
		m.moveSelection(limit)
	case "enter", "right":
		if all := m.sortedServices(); len(all) > 0 {
			m.detail = all[m.index(all)].ServiceName().String()
			return m.requestSample()
		}
	}
	return nil
}

func (m *Model) editFilter(key tea.KeyPressMsg) tea.Cmd {
	switch name := key.String(); {
	case name == "ctrl+c":
		return tea.Quit
	case name == "esc":
		m.filter, m.editing = m.previous, false
	case name == "enter":
		m.editing = false
		return nil
	case name == "backspace":
		_, size := utf8.DecodeLastRuneInString(m.filter)
		m.filter = m.filter[:len(m.filter)-size]
	case name == "ctrl+u":
		m.filter = ""
	case key.Text != "" && utf8.RuneCountInString(m.filter) < maxFilter:
		m.filter += key.Text
	default:
		return nil
	}
	return m.requestSample()
}

type order int

const (
	byRate order = iota
	byConnections
	byName
	byProblem // frontends without an endpoint
	orders
)

func (o order) String() string { return [...]string{"rate", "total", "name", "not served"}[o] }

func (m *Model) sortedServices() []api.LiveService {
	if m.now == nil {
		return nil
	}
	all := slices.Clone(m.now.Services)
	slices.SortStableFunc(all, func(a, b api.LiveService) int { return m.compare(&a, &b) })
	return all
}

func (m *Model) moveSelection(by int) {
	all := m.sortedServices()
	if len(all) == 0 {
		return
	}
	i := min(max(m.index(all)+by, 0), len(all)-1)
	m.selected = all[i].ServiceName()
}

// index returns the place of the selected Service, or 0.
func (m *Model) index(all []api.LiveService) int {
	i := slices.IndexFunc(all, func(s api.LiveService) bool { return s.ServiceName() == m.selected })
	return max(i, 0)
}
