package report

import (
	"github.com/nftproxy/nftproxy/internal/agent"
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// FakeAgent is an agent in a state that a test sets; what is nil, it does not have.
type FakeAgent struct {
	In       func() agent.State
	Routes   func() *model.Routing
	Views    func(model.ServiceName) *model.View
	Services func() []model.ServiceName
}

// State implements [Agent].
func (a FakeAgent) State() (s agent.State) {
	if a.In != nil {
		s = a.In()
	}
	return s
}

// Routing implements [Agent].
func (a FakeAgent) Routing() *model.Routing { return a.Routes() }

// View implements [Agent].
func (a FakeAgent) View(name model.ServiceName) *model.View {
	if a.Views == nil {
		return nil
	}
	return a.Views(name)
}

// Names implements [Agent].
func (a FakeAgent) Names() []model.ServiceName {
	if a.Services == nil {
		return nil
	}
	return a.Services()
}

// Named implements [Agent].
func (a FakeAgent) Named(namespace, name string) []model.ServiceName {
	return api.NameList(a.Names()).Named(namespace, name)
}
