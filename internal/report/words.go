package report

import (
	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Words has the words for Services.
type Words interface {
	// IsBalance reports whether a Service comes from a Balance.
	IsBalance(model.ServiceName) bool
	// Words are the words for all Services together.
	Words() words.Vocabulary
}

// ofRules are words as far as rules tell.
type ofRules map[model.ServiceName]bool

// IsBalance implements [Words].
func (o ofRules) IsBalance(name model.ServiceName) bool { return o[name] }

// Words implements [Words]. A report from rules has its own.
func (o ofRules) Words() words.Vocabulary { return words.Kubernetes }

// words are the words for all Services together.
func (s *Server) words() words.Vocabulary { return s.config.Facts.Words() }

// isBalance reports whether a Service comes from a Balance.
func (r *report) isBalance(name model.ServiceName) bool { return r.of != nil && r.of.IsBalance(name) }

// wordsFor returns the words for a Service.
func (r *report) wordsFor(name model.ServiceName) words.Vocabulary {
	return words.Of(r.isBalance(name))
}

// objectOf returns the object that a Service comes from, as problems name it.
func (r *report) objectOf(name model.ServiceName) api.Object { return api.Object(objectOf(r.of, name)) }

func objectOf(of Words, name model.ServiceName) model.Object {
	return name.ObjectAs(of != nil && of.IsBalance(name))
}

// nameBalances names Balances where others, which know the names of Services alone, have
// problems of Services.
func (r *report) nameBalances(of Words) {
	for _, list := range [][]api.Problem{r.Problems, r.Notes} {
		for i := range list {
			if name, ok := list[i].Object.Service(); ok {
				list[i].Object = r.objectOf(name)
			}
		}
	}
}
