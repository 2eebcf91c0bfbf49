package main

import (
	"slices"

	"github.com/nftproxy/nftproxy/internal/explain"
	"github.com/nftproxy/nftproxy/internal/fastpath"
	"github.com/nftproxy/nftproxy/internal/model"
)

// takesFastPath says what the rules do not show, and a trace does not see.
const takesFastPath = "once established, connections that this machine forwards take the fast path: they skip the rules of all programs"

// fastPathNotes says whether established connections to a frontend take the fast path of the
// kernel now. Without a fast path there is nothing to say.
func fastPathNotes(f model.Frontend) []string {
	switch takes, err := fastpath.Takes(f); {
	case err != nil:
		return []string{"whether established connections take the fast path is not known: " + err.Error()}
	case takes:
		return []string{takesFastPath}
	}
	return nil
}

// addFastPath says whether established connections take the fast path on a node with this
// configuration, and why not.
func addFastPath(r *explain.Result, routing *model.Routing, node *model.Config) {
	if node.FastPath.Level == model.FastPathOff {
		return
	}
	i := slices.IndexFunc(routing.Routes, func(route model.Route) bool { return route.Frontend == r.Frontend })
	if i < 0 {
		return
	}
	note := takesFastPath
	if err := node.NoFastPath(&routing.Routes[i]); err != nil {
		note = "connections do not take the fast path: " + err.Error()
	}
	r.Notes = append(r.Notes, note)
}
