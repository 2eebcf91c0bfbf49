package report

import (
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Line returns the report of a running daemon in one line: the numbers of Services and
// endpoints, and the most urgent problem.
func (s *Server) Line() string {
	r, err := s.report(&api.Filter{})
	if err != nil {
		return "cannot build the report: " + err.Error()
	}
	return r.line()
}

func (r *report) line() string {
	served := r.Words.Count(r.Services, "Service") + ", " + r.Words.Count(r.Endpoints, "endpoint")
	if len(r.Problems) == 0 {
		return served
	}
	first := r.Problems[0]
	message, _, _ := strings.Cut(first.Message, "\n")
	return served + "; " + terminal.Count(len(r.Problems), "problem") + ": " + first.Object.String() + ": " + message
}
