package fleetlab

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/report"
	"github.com/nftproxy/nftproxy/internal/words"
)

// NoFacts are the facts of a daemon that has no feature: they implement [report.Facts].
type NoFacts struct{}

// IsBalance returns false.
func (NoFacts) IsBalance(model.ServiceName) bool { return false }

// Words returns the ones of Kubernetes.
func (NoFacts) Words() words.Vocabulary { return words.Kubernetes }

// SourceState returns the state of a source that can be used.
func (NoFacts) SourceState() (s report.SourceState) { return s }

// Problems returns none.
func (NoFacts) Problems() []model.Notice { return nil }

// Notes returns none.
func (NoFacts) Notes() []model.Notice { return nil }

// AddToStatus adds nothing.
func (NoFacts) AddToStatus(*api.Status, time.Time) {}

// AddToDescription adds nothing.
func (NoFacts) AddToDescription(*api.Description, *model.View, time.Time) {}

// Drains returns none.
func (NoFacts) Drains(url.Values) (*api.Drains, error) {
	return &api.Drains{Drains: model.Drains{Drained: []model.DrainEntry{}}}, nil
}

// Observed returns no events.
func (NoFacts) Observed(context.Context, *api.ObserveQuery) *api.Observed {
	return &api.Observed{Time: time.Now(), Level: model.ObserveOff.String(), Events: []api.Observation{}}
}

// Basis returns an empty one.
func (NoFacts) Basis() *api.Basis { return &api.Basis{Version: api.BasisVersion} }

// Handler answers with the documents of a server.
func Handler(s *report.Server) http.Handler {
	mux := http.NewServeMux()
	for _, p := range s.Pages() {
		mux.Handle(p.Path, p.Handler)
	}
	return mux
}
