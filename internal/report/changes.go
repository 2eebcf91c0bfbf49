package report

import (
	"fmt"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
)

// addChanges adds the changes of servers that no file has to a status.
func (s *Server) addChanges(r *report) {
	if s.config.Changes == nil {
		return
	}
	if text := s.config.Changes.NotAdopted(); text != "" {
		r.Problems = append(r.Problems, api.Problem{
			Object: "Runtime changes", Reason: model.ChangesUnusable,
			Message: strings.ReplaceAll(text, "\n", "; ") + "; \"nftproxy undo --all\" begins again",
		})
	}
	list := s.config.Changes.Changes()
	for _, name := range list.Names() {
		for _, c := range list[name] {
			message := fmt.Sprintf("%s: %s; by %s", c.Server, c.Text(), c.By)
			if !c.Since.IsZero() {
				message += " at " + c.Since.Local().Format("2006-01-02 15:04:05")
			}
			r.Notes = append(r.Notes, api.Problem{Object: name.BalanceObject().String(), Reason: model.ServerChanged, Message: message})
		}
	}
}
