package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/budget"
	"github.com/nftproxy/nftproxy/internal/serve"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Pages returns the documents that the server answers with.
func (s *Server) Pages() []serve.Page { return s.pages }

// Page returns the page of a document that others make: as JSON, or with the parameter "text" for people. Its parameters
// are those of live data.
func (s *Server) Page(path, about string, view func(q api.LiveQuery, byName bool) (fmt.Stringer, error)) serve.Page {
	return s.newPage(path, about, serve.NewAnswers(budget.PageRequests, writeTimeout), func(values url.Values) (any, error) {
		q, err := api.ParseLiveQuery(values)
		if err != nil {
			return nil, malformed(err)
		}
		document, err := view(q, values.Get("sort") == "name")
		if err != nil {
			return nil, err
		}
		if values.Has("text") {
			return bytes.NewBufferString(document.String()), nil
		}
		return api.View{Time: time.Now(), Node: s.config.Node, Document: document}, nil
	})
}

func (s *Server) newPage(path, about string, limit *serve.Answers, answer func(url.Values) (any, error)) serve.Page {
	return serve.Page{Path: path, Handler: handler(s.config.Log, limit, atOnce(answer)), About: about}
}

func (s *Server) newPages() []serve.Page {
	page := s.newPage
	few := serve.NewAnswers(budget.PageRequests, writeTimeout)
	return []serve.Page{
		page(api.StatusPath, "what this node serves and whether it is healthy, as JSON (nftproxy status)", few, s.answerStatus),
		page(api.DescribePath, "one Service with its endpoints, as JSON: add ?service=NAMESPACE/NAME (nftproxy describe)", few, s.answerDescription),
		page(api.DrainPath, "endpoints that are drained on this machine, as JSON (nftproxy drain)", nil, s.answerDrains),
		page(api.BasisPath, "the facts that decide over the rules besides the objects: settings, failing and drained endpoints, as JSON (nftproxy diff)",
			serve.NewAnswers(budget.PageRequests, writeTimeout), func(url.Values) (any, error) { return s.config.Facts.Basis(), nil }),
		{Path: api.ComparePath, Handler: handler(s.config.Log, serve.NewAnswers(budget.PageRequests, writeTimeout), s.comparer.answer),
			About: "what the kernel holds beside the rules that are wanted, as JSON (kubectl nftproxy diff)"},
		page(api.LivePath, "connections, changes and problems at present, as JSON (nftproxy top)", s.live.limit, s.live.answer),
		{Path: api.ObservePath, Handler: s.observePage(), About: "connections that were refused, and why, as JSON (nftproxy observe)"},
		page(api.RulesPath, "the rules as the kernel has them, as nft lists them (nftproxy bundle)", serve.NewAnswers(1, writeTimeout), s.answerRules),
	}
}

// observePage answers requests that wait for events apart from those that do not.
func (s *Server) observePage() http.Handler {
	once := handler(s.config.Log, serve.NewAnswers(budget.PageRequests, writeTimeout), s.answerObserved)
	follow := handler(s.config.Log, serve.NewAnswers(budget.FollowerRequests, followTimeout), s.answerObserved) // apart from the others, which these must not hold up
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("wait") {
			follow.ServeHTTP(w, r)
			return
		}
		once.ServeHTTP(w, r)
	})
}

func (s *Server) answerDrains(query url.Values) (any, error) {
	answer, err := s.config.Facts.Drains(query)
	if err != nil {
		return nil, malformed(err)
	}
	return answer, nil
}

// followTimeout limits a request that waits for events.
const followTimeout = api.MaxWait + writeTimeout

// answerObserved answers with an [api.Observed].
func (s *Server) answerObserved(ctx context.Context, values url.Values) (any, error) {
	q, err := api.ParseObserveQuery(values)
	if err != nil {
		return nil, malformed(err)
	}
	out := s.config.Facts.Observed(ctx, &q)
	out.Instance, out.Node, out.Words = s.live.instance, s.config.Node, s.config.Facts.Words()
	return out, nil
}

// answer returns the document that a query asks for; the context ends when the client is gone.
// The error is a [refusal], an [api.UnknownError], or else a failure of this process.
type answer func(context.Context, url.Values) (document any, err error)

// atOnce returns an answer that waits for nothing.
func atOnce(f func(url.Values) (any, error)) answer {
	return func(_ context.Context, v url.Values) (any, error) { return f(v) }
}

// refusal is why a page has no document, with the status of the answer.
type refusal struct {
	error
	status int
}

func malformed(err error) error { return refusal{err, http.StatusBadRequest} }

// handler answers with documents, which it holds in memory; limit is how many at the same time,
// nil: as many as are asked for.
func handler(log *slog.Logger, limit *serve.Answers, answer answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if limit != nil {
			done := limit.Begin(w)
			if done == nil {
				return
			}
			defer done()
		}
		document, err := answer(r.Context(), r.URL.Query())
		var unknown *api.UnknownError
		switch refused := (refusal{}); {
		case errors.As(err, &refused):
			http.Error(w, err.Error(), refused.status)
			return
		case errors.As(err, &unknown):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			document = api.Refusal{Error: err.Error()}
		case err != nil:
			log.Error("a page cannot be answered", "page", r.URL.Path, "error", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		switch d := document.(type) { // an error: the client is gone
		case *report:
			_ = d.WriteJSON(w)
		case *api.Description:
			_ = terminal.JSON(w, d)
		case *bytes.Buffer:
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = d.WriteTo(w)
		default:
			_ = json.NewEncoder(w).Encode(d)
		}
	})
}

// maxRules is how many frontends there may be for the rules to be listed: the daemon
// reads them all into memory, some kilobytes for each frontend.
const maxRules = 20_000

// answerRules answers with the rules as the kernel has them, as nft prints them (11.30): images
// have no nft.
func (s *Server) answerRules(url.Values) (any, error) {
	if routing := s.routing(); routing != nil && len(routing.Routes) > maxRules {
		return nil, refusal{fmt.Errorf("there are %d frontends, and rules are listed up to %d: use nft list table ip nftproxy on the node", len(routing.Routes), maxRules), http.StatusUnprocessableEntity}
	}
	s.reading.Lock()
	rules, _, err := s.config.Kernel.Read()
	s.reading.Unlock()
	if err != nil {
		return nil, err
	}
	text := new(bytes.Buffer)
	return text, rules.Text(text)
}
