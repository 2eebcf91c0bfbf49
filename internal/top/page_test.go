package top

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/internal/api"
)

// TestPageView: 11.31, a text of the daemon fills the terminal, without what would control it; keys change the order and pause.
func TestPageView(t *testing.T) {
	var asked []string
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		fmt.Fprintf(w, "first\x1b[2J, which is wide\nsecond\n")
	}))
	defer daemon.Close()
	client := api.NewClient(netip.MustParseAddrPort(strings.TrimPrefix(daemon.URL, "http://")))
	defer client.Close()
	p := &Page{Client: client, Path: "/open", Filter: "shop/"}
	answer := func(ask tea.Cmd) tea.Cmd { _, next := p.Update(ask()); return next }
	_, ask := p.Update(tea.WindowSizeMsg{Width: 20, Height: 23})
	if answer(ask) == nil {
		t.Error("no question follows")
	}
	shows := func(want ...string) {
		t.Helper()
		lines := strings.Split(ansi.Strip(p.Text()), "\n")
		if len(lines) != 23 {
			t.Errorf("%d lines", len(lines))
		}
		if d := cmp.Diff(want, append(lines[:2:2], lines[22])); d != "" {
			t.Error(d)
		}
	}
	shows(`first\x1b[2J, which…`, "second", "q: quit  s: sort  p…")
	answer(p.handleKey("s"))
	p.handleKey("p")
	shows(`first\x1b[2J, which…`, "second", "PAUSED  q: quit  s:…")
	if _, more := p.Update(tick{p.asked}); more != nil {
		t.Error("it asks while paused")
	}
	p.Update(page{asked: p.asked, err: errors.New("gone")})
	shows("! gone", `first\x1b[2J, which…`, "PAUSED  q: quit  s:…")
	if want := []string{"/open?filter=shop%2F&limit=3&text", "/open?filter=shop%2F&limit=3&sort=name&text"}; !cmp.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}
