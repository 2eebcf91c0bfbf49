package report

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/kernel/counters"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/render"
)

// listed is a kernel of which only the rules can be read.
type listed func() (*nft.Ruleset, uint32, error)

func (l listed) Read() (*nft.Ruleset, uint32, error)                        { return l() }
func (listed) AffinityUse() ([]kernel.AffinityUse, error)                   { return nil, errNotRead }
func (listed) FrontendCounts() ([]counters.Frontend, error)                 { return nil, errNotRead }
func (listed) EndpointCounts([]model.Frontend) ([]counters.Endpoint, error) { return nil, errNotRead }
func (listed) LimitDrops() ([]counters.Limit, error)                        { return nil, errNotRead }
func (listed) Unlimited() ([]counters.Limit, error)                         { return nil, errNotRead }
func (listed) Refusals() ([]counters.Refusal, error)                        { return nil, errNotRead }
func (listed) Bindings(model.Family, int) ([]*nft.Set, error)               { return nil, errNotRead }

var errNotRead = errors.New("this is not to be read")

// TestRulesPage: 11.30. The tables of the kernel are listed as nft does, unless they are large.
func TestRulesPage(t *testing.T) {
	routing := services(3)
	rules := render.Render(routing)
	var want strings.Builder
	if err := rules.Text(&want); err != nil {
		t.Fatal(err)
	}
	var failure error
	s := New(Config{
		Log: slog.New(slog.DiscardHandler), Agent: FakeAgent{Routes: func() *model.Routing { return routing }},
		Kernel: listed(func() (*nft.Ruleset, uint32, error) { return rules, 1, failure }),
	})
	get := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler(s.config.Log, nil, atOnce(s.answerRules)).ServeHTTP(w, httptest.NewRequest("GET", api.RulesPath, nil))
		return w
	}
	s.Observe(&agent.Sync{})
	if w := get(); w.Code != http.StatusOK || w.Body.String() != want.String() || !strings.Contains(want.String(), "table ip nftproxy") {
		t.Errorf("%d: %s\nwant %s", w.Code, w.Body, &want)
	}
	routing = services(maxRules + 1)
	if w := get(); w.Code != http.StatusUnprocessableEntity || !strings.Contains(w.Body.String(), "use nft list table") {
		t.Errorf("too many frontends: %d: %s", w.Code, w.Body)
	}
	routing, failure = services(1), errors.New("kernel is away")
	if w := get(); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "kernel is away") {
		t.Errorf("without an answer of the kernel: %d: %s", w.Code, w.Body)
	}
}
