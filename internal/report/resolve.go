package report

import (
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// maxListed is how many names a message lists.
const maxListed = 5

// Resolve returns the Service that a name stands for: namespace/name, or the name alone
// if only one namespace has it. in are the words for all of them. The error is an [api.UnknownError].
func Resolve(name string, all []model.ServiceName, in words.Vocabulary) (model.ServiceName, error) {
	namespace, bare, qualified := strings.Cut(name, "/")
	if !qualified {
		bare = name
	}
	var found []model.ServiceName
	for _, s := range all {
		if s.Name == bare && (!qualified || s.Namespace == namespace) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return model.ServiceName{}, &api.UnknownError{Message: in.Sprintf("%q is the name of several Services: choose %s", name, choices(found))}
	}
	return model.ServiceName{}, &api.UnknownError{Words: in, Name: name, Hint: suggest.DidYouMean(similar(name, qualified, all))}
}

// similar returns names as [Resolve] takes them.
func similar(name string, qualified bool, all []model.ServiceName) []string {
	text := func(s model.ServiceName) string {
		if qualified {
			return s.String()
		}
		return s.Name
	}
	var names, full []string
	for _, s := range all {
		names = append(names, text(s))
	}
	for _, like := range suggest.Similar(name, names) {
		for _, s := range all {
			if text(s) == like {
				full = append(full, s.String())
			}
		}
	}
	return full[:min(len(full), maxListed)]
}

func choices(found []model.ServiceName) string {
	slices.SortFunc(found, model.ServiceName.Compare)
	var names []string
	for _, s := range found {
		names = append(names, s.String())
	}
	return terminal.List(names, maxListed)
}
