package report

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/serve"
)

// maxRules is how many frontends there may be for the rules to be listed: the daemon
// reads them all into memory, some kilobytes for each frontend.
const maxRules = 20_000

// rulesPage answers with the rules as the kernel has them, as nft prints them (11.30): images
// have no nft.
func (s *Server) rulesPage() http.Handler {
	limit := serve.NewAnswers(1, writeTimeout)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		done := limit.Begin(w)
		if done == nil {
			return
		}
		defer done()
		if _, routing := s.observed(); routing != nil && len(routing.Routes) > maxRules {
			http.Error(w, fmt.Sprintf("there are %d frontends, and rules are listed up to %d: use nft list table ip nftproxy on the node", len(routing.Routes), maxRules), http.StatusUnprocessableEntity)
			return
		}
		s.reading.Lock()
		rules, _, err := s.config.Kernel.Read()
		s.reading.Unlock()
		var text bytes.Buffer
		if err == nil {
			err = rules.Text(&text)
		}
		if err != nil {
			s.config.Log.Error("a page cannot be answered", "page", api.RulesPath, "error", err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = text.WriteTo(w) // an error: the client is gone
	})
}
