// Package changes makes the changes of servers that commands ask for a part of the source.
package changes

import (
	"fmt"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/feature"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

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

// namedChanges is how many changes a warning names.
const namedChanges = 3

// Plan implements [feature.Planner]. Changes count as far as the snapshot has the servers as they were.
func (Kind) Plan(s *model.Snapshot, k *feature.Known) (feature.Planned, error) {
	edited, held := k.Changes.EditSnapshot(s)
	p := feature.Planned{Snapshot: edited}
	if n := held.Len(); n > 0 {
		p.Warning = fmt.Sprintf("the rules have %s that no file has (%s): \"nftproxy undo\" ends them",
			terminal.Count(n, "runtime change"), terminal.List(held.Texts(), namedChanges))
	}
	return p, nil
}

type changes struct{ *drain.Store }

func (c changes) Changed() *drain.Store { return c.Store }

func (c changes) AddTo(k *feature.Known) { k.Changes = c.Changes() }

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
