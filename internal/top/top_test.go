package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

var update = flag.Bool("update", false, "rewrite the views in testdata")

func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// feed returns the recorded samples.
func feed(t *testing.T) (samples []*api.Sample) {
	t.Helper()
	b, err := os.ReadFile("testdata/feed.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &samples); err != nil {
		t.Fatal(err)
	}
	return samples
}

// give answers the last question.
func (m *Model) give(s *api.Sample, err error) {
	m.Update(answer{asked: m.asked, service: m.detail, sample: s, err: err})
}

// press presses keys, each a name, or letters.
func (m *Model) press(keys ...string) tea.Cmd {
	var last tea.Cmd
	for _, k := range keys {
		codes := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "end": tea.KeyEnd,
			"home": tea.KeyHome, "pgdown": tea.KeyPgDown, "backspace": tea.KeyBackspace}
		msg := tea.KeyPressMsg{Code: codes[k]}
		if msg.Code == 0 {
			msg = tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		}
		_, last = m.Update(msg)
	}
	return last
}

// recorded returns a view of a size that has both samples.
func recorded(t *testing.T, width, height int) *Model {
	t.Helper()
	m := New(Config{Address: "127.0.0.1:10249"})
	m.Init()
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	for _, s := range feed(t) {
		m.give(s, nil)
	}
	return m
}

// golden compares a view with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got+"\n", "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// TestViews compares views of recorded samples with files: after keys, and on
// terminals of several sizes. Each fills its terminal.
func TestViews(t *testing.T) {
	for _, c := range []struct {
		name          string
		width, height int
		prepare       func(m *Model)
	}{
		{"list", 80, 24, func(*Model) {}},
		{"wide", 140, 40, func(*Model) {}},
		{"small", 40, 12, func(m *Model) { m.press("down") }},
		{"too-small", 39, 12, func(*Model) {}},
		{"detail", 100, 24, func(m *Model) { s := m.now; m.press("enter"); m.give(s, nil) }},
		{"detail-failing", 70, 24, func(m *Model) {
			s := *m.now
			d := *s.Detail
			d.Failing = []api.FailingEndpoint{{Address: "10.128.0.7", Message: "connect: refused", Since: s.Time.Add(-2 * time.Minute)},
				{Address: "fd00::7", Message: "GET /healthz: status 503, expected 200-399", Since: s.Time.Add(-time.Second)}}
			d.FailingCount, s.Detail = 53, &d
			m.press("enter")
			m.give(&s, nil)
		}},
		{"detail-starting", 110, 24, func(m *Model) {
			s := *m.now
			d := *s.Detail
			d.Ports = slices.Clone(d.Ports)
			d.Ports[0].EndpointList = slices.Clone(d.Ports[0].EndpointList)
			d.Ports[0].EndpointList[1].Starting = &api.Starting{Part: 0.4, Full: s.Time.Add(20 * time.Second)}
			s.Detail = &d
			m.press("enter")
			m.give(&s, nil)
		}},
		{"detail-asked", 80, 12, func(m *Model) { m.press("down", "enter") }},
		{"detail-gone", 80, 12, func(m *Model) { s := *m.now; m.press("enter"); s.Detail = nil; m.give(&s, nil) }},
		{"help", 90, 24, func(m *Model) { m.press("?") }},
		{"filter", 80, 14, func(m *Model) { s := *m.now; m.press("/", "q", "s"); s.Services, s.Matching = nil, 0; m.give(&s, nil) }},
		{"filtered", 80, 16, func(m *Model) {
			s := *m.now
			m.press("/", "o", "p", "enter")
			s.Services, s.Matching = s.Services[:3], 8000
			m.give(&s, nil)
		}},
		{"by-name-paused", 80, 18, func(m *Model) { m.press("s", "s", "p", "end") }},
		{"by-problem", 80, 18, func(m *Model) { m.press("s", "s", "s") }},
		{"daemon-gone", 80, 18, func(m *Model) { m.give(nil, fmt.Errorf("%w at 127.0.0.1:10249", api.ErrNoDaemon)) }},
		{"broken-source", 80, 18, func(m *Model) {
			s := *m.now
			s.Healthy, s.Problems, s.ProblemCount = false, nil, 0
			s.SourceError = &api.SourceError{Message: "a.yaml: a tab in the indentation", Since: s.Time.Add(-time.Minute)}
			s.PendingSince = s.Time.Add(-3 * time.Second)
			m.give(&s, nil)
		}},
		{"ascii", 80, 16, func(m *Model) { m.config.ASCII = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := recorded(t, c.width, c.height)
			c.prepare(m)
			text := m.Text()
			lines := strings.Split(text, "\n")
			for _, l := range lines {
				if ansi.StringWidth(l) > c.width {
					t.Errorf("line of %d characters: %q", ansi.StringWidth(l), l)
				}
			}
			if c.name != "too-small" && len(lines) != c.height {
				t.Errorf("%d lines for %d", len(lines), c.height)
			}
			golden(t, c.name, ansi.Strip(text))
		})
	}
}

// TestViewsBefore: what is shown before there are rates, or any sample.
func TestViewsBefore(t *testing.T) {
	m := New(Config{Address: "127.0.0.1:10249"})
	m.Init()
	m.height = 10
	golden(t, "asking", ansi.Strip(m.Text()))
	m.give(nil, fmt.Errorf("%w at 127.0.0.1:10249 (dial tcp: connection refused)", api.ErrNoDaemon))
	golden(t, "no-daemon", ansi.Strip(m.Text()))
	s := feed(t)[0]
	s.Problems, s.ProblemCount = nil, 0
	m.give(s, nil)
	golden(t, "first-sample", ansi.Strip(m.Text()))
	s.Counted = false
	for i := range s.Services {
		s.Services[i].Connections, s.Services[i].Recent = nil, nil
	}
	m.give(s, nil)
	golden(t, "not-counted", ansi.Strip(m.Text()))
}

// TestHostileNames: nothing that a daemon answers reaches the terminal as a control
// sequence.
func TestHostileNames(t *testing.T) {
	const evil = "a\x1b[2J\u009b31m\nforged\tx\u202e"
	s := feed(t)[1]
	s.Version, s.Node, s.Source = evil, evil, evil
	s.SourceError = &api.SourceError{Message: evil}
	s.Problems[0] = api.Problem{Object: model.Object{Kind: evil, Name: evil}, Message: evil}
	s.Services[0].Name, s.Changes[0].Services, s.Changes[1].Cause, s.Changes[2].Error = evil, []string{evil}, evil, evil
	p := &s.Detail.Ports[0]
	p.Port, p.Protocol, p.Frontends[0].Kind, p.Frontends[0].Address, p.Frontends[0].Verdict, p.EndpointList[0].Address = evil, evil, evil, evil, evil, evil
	s.Detail.Failing = []api.FailingEndpoint{{Address: evil, Message: evil}}
	s.Detail.Namespace, s.Detail.Name = "shop", "web"
	for _, service := range []string{"", "shop/web"} {
		m := New(Config{Service: service, Filter: evil})
		m.width, m.height = 200, 40
		m.Init()
		m.give(s, nil)
		for _, text := range []string{ansi.Strip(m.Text()), m.renderOnce()} {
			if strings.ContainsAny(text, "\x1b\u009b\t\u202e") || strings.Contains(text, "\nforged") {
				t.Errorf("%q", text)
			}
		}
	}
}

// TestKeys: keys that end, pause, select and filter.
func TestKeys(t *testing.T) {
	m := recorded(t, 80, 24)
	asked := m.asked
	m.press("down", "down", "up")
	if m.selected.Name != "api" {
		t.Errorf("selected %s", m.selected)
	}
	m.press("end")
	if m.selected.Name != "metrics" {
		t.Errorf("at the end: %s", m.selected)
	}
	m.press("home")
	if m.asked != asked {
		t.Error("the selection asks the daemon")
	}
	if cmd := m.press("p"); cmd != nil || !m.paused {
		t.Error("not paused")
	}
	if _, cmd := m.Update(tick{m.asked}); cmd != nil {
		t.Error("asks although it is paused")
	}
	if cmd := m.press("p"); cmd == nil {
		t.Error("does not ask when it continues")
	}
	if _, cmd := m.Update(tick{m.asked - 1}); cmd != nil {
		t.Error("an old tick asks")
	}
	m.press("/", "a", "b", "backspace", "c")
	if m.filter != "ac" || !m.editing {
		t.Errorf("filter %q", m.filter)
	}
	m.press("esc")
	if m.filter != "" || m.editing {
		t.Errorf("cancelled filter %q", m.filter)
	}
	m.press("/", "a", "enter")
	if cmd := m.press("esc"); m.filter != "" || cmd == nil {
		t.Errorf("filter %q stays", m.filter)
	}
	m.press("enter")
	if m.detail != "shop/web" {
		t.Errorf("detail of %q", m.detail)
	}
	if m.press("s"); m.order != byRate {
		t.Error("sorts the detail")
	}
	m.press("esc")
	if cmd := m.press("q"); m.detail != "" || cmd == nil || cmd() != (tea.QuitMsg{}) {
		t.Error("does not end")
	}
}

// TestAnswers: an answer to an earlier question is dropped, and one reading does not
// count twice.
func TestAnswers(t *testing.T) {
	m := recorded(t, 80, 24)
	if len(m.history) != 1 || m.history[0] != 1606.5 {
		t.Errorf("history %v", m.history)
	}
	m.give(m.now, nil)
	if len(m.history) != 1 || !m.rates.Known {
		t.Errorf("the same reading again: history %v, rates %v", m.history, m.rates)
	}
	m.Update(answer{asked: m.asked - 1, err: errors.New("late")})
	if m.err != nil {
		t.Errorf("a late answer counts: %v", m.err)
	}
	restarted := *m.now
	restarted.Instance = "another"
	m.give(&restarted, nil)
	if m.rates.Known || len(m.history) != 1 {
		t.Errorf("rates across a restart: %v", m.rates)
	}
}

// TestOnce prints a sample with rates, as text and as JSON.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		samples := feed(t)
		run := func(c Config, asJSON bool, answers ...*api.Sample) string {
			t.Helper()
			c.Ask = func(context.Context, api.LiveQuery) (*api.Sample, error) {
				s := answers[0]
				answers = answers[min(1, len(answers)-1):]
				return s, nil
			}
			var out bytes.Buffer
			if err := Once(t.Context(), &out, c, asJSON); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		samples[1].Matching = 1200
		golden(t, "once", run(Config{}, false, samples[0], samples[0], samples[1]))
		plain, painted := run(Config{}, false, samples[0], samples[0], samples[1]), run(Config{Colours: true}, false, samples[0], samples[0], samples[1])
		if !strings.Contains(painted, good.Styled("healthy")) || ansi.Strip(painted) != plain {
			t.Errorf("with colours: %q", painted)
		}
		golden(t, "once-detail", run(Config{Service: "shop/web"}, false, samples...))
		var got struct {
			Node      string
			PerSecond PerSecond
		}
		if err := json.Unmarshal([]byte(run(Config{}, true, samples...)), &got); err != nil || got.Node != "node-1" || got.PerSecond.Total != 1606.5 ||
			got.PerSecond.Services["shop/web"] != 1200 || got.PerSecond.Frontends["tcp 10.96.0.10:80"] != 500 {
			t.Errorf("%v: %+v", err, got)
		}
		began := time.Now()
		samples[0].Counted = false
		if out := run(Config{}, false, samples[0]); !strings.Contains(out, hintNotCounted) || time.Since(began) > 0 {
			t.Errorf("waits for %v without counters: %s", time.Since(began), out)
		}
		if err := Once(t.Context(), nil, Config{Ask: func(context.Context, api.LiveQuery) (*api.Sample, error) { return nil, api.ErrNoDaemon }}, false); !errors.Is(err, api.ErrNoDaemon) {
			t.Errorf("without a daemon: %v", err)
		}
	})
}
