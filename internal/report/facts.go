package report

import (
	"context"
	"net/url"
	"time"

	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Agent is the part of [agent.Agent] that a server needs.
type Agent interface {
	State() agent.State
	Routing() *model.Routing
	View(model.ServiceName) *model.View // nil: there is no such Service
	Names() []model.ServiceName
	// Named returns the Services of a name in a namespace, or in all if that is empty.
	Named(namespace, name string) []model.ServiceName
}

// Words has the words for Services.
type Words interface {
	// IsBalance reports whether a Service comes from a Balance.
	IsBalance(model.ServiceName) bool
	// Words are the words for all Services together.
	Words() words.Vocabulary
}

// Facts are what the rest of a daemon knows. Features fill the documents with theirs.
type Facts interface {
	Words
	SourceState() SourceState
	// Problems are the ones of the machine and of features, and Notes what else operators should know.
	Problems() []model.Notice
	Notes() []model.Notice
	AddToStatus(*api.Status, time.Time)
	AddToDescription(*api.Description, *model.View, time.Time)
	// Drains answers a question about drained endpoints. The error is a mistake in it.
	Drains(url.Values) (*api.Drains, error)
	Observed(context.Context, *api.ObserveQuery) *api.Observed
	// Basis has the facts, besides the objects, that decide over the rules.
	Basis() *api.Basis
}

// SourceState is the state of the source of objects.
type SourceState struct {
	Err      error // why it cannot be used, since then; nil: it can
	Since    time.Time
	Warnings []string // about its objects
	// Seen are the newest resourceVersions of the API server that were seen; nil: there is no API server.
	Seen map[string]string
}

// NoFacts are the facts of a daemon that has no feature.
type NoFacts struct{}

// IsBalance implements [Words].
func (NoFacts) IsBalance(model.ServiceName) bool { return false }

// Words implements [Words].
func (NoFacts) Words() words.Vocabulary { return words.Kubernetes }

// SourceState implements [Facts].
func (NoFacts) SourceState() SourceState { return SourceState{} }

// Problems implements [Facts].
func (NoFacts) Problems() []model.Notice { return nil }

// Notes implements [Facts].
func (NoFacts) Notes() []model.Notice { return nil }

// AddToStatus implements [Facts].
func (NoFacts) AddToStatus(*api.Status, time.Time) {}

// AddToDescription implements [Facts].
func (NoFacts) AddToDescription(*api.Description, *model.View, time.Time) {}

// Drains implements [Facts].
func (NoFacts) Drains(url.Values) (*api.Drains, error) {
	return &api.Drains{Drained: []api.Drained{}}, nil
}

// Observed implements [Facts].
func (NoFacts) Observed(context.Context, *api.ObserveQuery) *api.Observed {
	return &api.Observed{Time: time.Now(), Level: model.ObserveOff.String(), Events: []api.Observation{}}
}

// Basis implements [Facts].
func (NoFacts) Basis() *api.Basis { return &api.Basis{Version: api.BasisVersion} }
