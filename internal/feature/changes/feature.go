// Package changes makes the changes of servers that commands ask for a part of the source.
package changes

import (
	"fmt"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Kind makes the feature.
type Kind struct{}

// New implements [feature.Kind]. Changes are of servers in files: without a socket that a setting asks for and changes of an
// earlier run there are none.
func (Kind) New(n *feature.Node) feature.Feature {
	file := feature.Find[interface{ Drains() *drain.Follower }](n.Features)
	if file == nil || !n.Files {
		return nil
	}
	store := drain.NewStore(file.Drains(), n.Log)
	if !n.Commands && store.Changes().Len() == 0 {
		return nil
	}
	return changes{store}
}

// changes are the feature.
type changes struct{ *drain.Store }

// Changed returns the changes of servers.
func (c changes) Changed() *drain.Store { return c.Store }

// Problems implements [feature.Reporter]: it returns why the file of changed servers cannot be used.
func (c changes) Problems(time.Time) []model.Notice {
	text := c.NotAdopted()
	if text == "" {
		return nil
	}
	return []model.Notice{{
		Object: model.Object{Kind: "Runtime changes"}, Reason: model.ChangesUnusable,
		Message: strings.ReplaceAll(text, "\n", "; ") + "; \"nftproxy undo --all\" begins again",
	}}
}

// Notes implements [feature.Noter]: it returns the changes of servers that no file has.
func (c changes) Notes() (out []model.Notice) {
	list := c.Changes()
	for _, name := range list.Names() {
		for _, change := range list[name] {
			message := fmt.Sprintf("%s: %s; by %s%s", change.Server, change.Text(), change.By, feature.SinceText(change.Since))
			out = append(out, model.Notice{Object: name.BalanceObject(), Reason: model.ServerChanged, Message: message})
		}
	}
	return out
}
