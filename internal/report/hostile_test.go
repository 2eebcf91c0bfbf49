package report_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/show"
	"github.com/nftproxy/nftproxy/internal/testkit/fleetlab"
)

// evil clears a terminal, colours it by a character of eight bits, and begins a
// line, a column and a page.
const evil = "a\x1b[2J\u009b31m\nforged\tx\rx\vx\fx\u202e\x7f"

// reportOf has text wherever a report has any.
func reportOf(text string) *api.Status {
	n := uint64(1)
	now := time.Unix(1000, 0)
	return &api.Status{
		From:   api.FromDaemon,
		Daemon: api.Daemon{Node: text, Version: text, Source: text, Started: now},
		Rules: api.Rules{LastSync: &api.Sync{Cause: text, Started: now, Error: text}, LastSuccess: now, PendingSince: now, Counted: true,
			Affinity: []api.Affinity{{Family: text}}},
		Served:   api.Served{HealthChecks: []api.ServiceHealth{{Namespace: text, Name: text, Port: 1, Endpoints: map[string]int{text: 1}}}},
		Findings: api.Findings{Problems: []api.Problem{{Object: model.Object{Kind: text, Namespace: text, Name: text}, Reason: model.Reason(text), Message: text}}},
		ServicePorts: []api.ServicePort{{Namespace: text, Name: text, Port: text, Protocol: text, Frontends: []api.Frontend{{
			Kind: text, Address: text, Decision: api.Decision{Verdict: text}, Outside: &api.Decision{Verdict: text, Endpoints: 1}, Connections: &n}}}},
	}
}

// TestHostileDaemon: where no daemon runs, its port is anybody's. What is printed
// of an answer neither reaches the terminal, nor begins a line or a column.
func TestHostileDaemon(t *testing.T) {
	printed := func(text string) []string {
		body, err := json.Marshal(reportOf(text))
		if err != nil {
			t.Fatal(err)
		}
		daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
		defer daemon.Close()
		r, err := api.NewClient(netip.MustParseAddrPort(daemon.Listener.Addr().String())).Status(t.Context(), &api.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := show.Status(&out, r, show.View{Now: time.Unix(2000, 0)}); err != nil {
			t.Fatal(err)
		}
		return strings.Split(out.String(), "\n")
	}
	got, harmless := printed(evil), printed("a")
	if len(got) != len(harmless) {
		t.Errorf("%d lines, %d with harmless names:\n%s", len(got), len(harmless), strings.Join(got, "\n"))
	}
	for _, line := range got {
		if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("line %q", line)
		}
	}
}

// TestNoRedirect: "nftproxy status" does not follow redirects.
func TestNoRedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked elsewhere") }))
	defer elsewhere.Close()
	daemon := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer daemon.Close()
	if _, err := api.NewClient(netip.MustParseAddrPort(daemon.Listener.Addr().String())).Status(t.Context(), &api.Filter{}); !errors.Is(err, api.ErrNoDaemon) {
		t.Errorf("error %v", err)
	}
}

// idleKernel remembers no client.
type idleKernel struct{}

func (idleKernel) AffinityUse() ([]kernel.AffinityUse, error)   { return nil, nil }
func (idleKernel) FrontendCounts() ([]counters.Frontend, error) { return nil, nil }
func (idleKernel) EndpointCounts([]model.Frontend) ([]counters.Endpoint, error) {
	return nil, nil
}

func (idleKernel) LimitDrops() ([]counters.Limit, error)          { return nil, nil }
func (idleKernel) Unlimited() ([]counters.Limit, error)           { return nil, nil }
func (idleKernel) Refusals() ([]counters.Refusal, error)          { return nil, nil }
func (idleKernel) Read() (*nft.Ruleset, uint32, error)            { return nil, 0, nil }
func (idleKernel) Bindings(model.Family, int) ([]*nft.Set, error) { return nil, nil }

// TestManyAsk: two requests are answered concurrently; further ones get an error.
func TestManyAsk(t *testing.T) {
	arrived, proceed := make(chan struct{}), make(chan struct{})
	s := report.New(report.Config{
		Facts: fleetlab.NoFacts{},
		Agent: report.FakeAgent{Routes: func() *model.Routing {
			arrived <- struct{}{}
			<-proceed
			return &model.Routing{}
		}},
		Kernel: idleKernel{}, Log: slog.New(slog.DiscardHandler),
	})
	s.Observe(&agent.Sync{})
	daemon := httptest.NewServer(fleetlab.Handler(s))
	defer daemon.Close()
	answers := make(chan error)
	ask := func() {
		_, err := api.NewClient(netip.MustParseAddrPort(daemon.Listener.Addr().String())).Status(context.Background(), &api.Filter{})
		answers <- err
	}
	go ask()
	<-arrived
	go ask()
	<-arrived
	go ask()
	if err := <-answers; err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("a third one gets %v", err)
	}
	proceed <- struct{}{}
	proceed <- struct{}{}
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	go ask() // there is room again
	<-arrived
	proceed <- struct{}{}
	if err := <-answers; err != nil {
		t.Error(err)
	}
}

// TestHostileJSON is the same for programs: one value, whatever the names.
func TestHostileJSON(t *testing.T) {
	var out bytes.Buffer
	if err := reportOf(evil).WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back api.Status
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.ServicePorts[0].Name != evil {
		t.Errorf("%v: read back %q", err, out.String())
	}
}
