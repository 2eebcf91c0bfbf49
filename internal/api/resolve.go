package api

import (
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// maxListed is how many names a message lists.
const maxListed = 5

// Resolve returns the Service that a name stands for: namespace/name, or the name alone
// if only one namespace has it. in are the words for all of them. The error is an [UnknownError].
func Resolve(name string, all []model.ServiceName, in words.Vocabulary) (model.ServiceName, error) {
	return Names{
		Named: func(namespace, bare string) (found []model.ServiceName) {
			for _, s := range all {
				if s.Name == bare && (namespace == "" || s.Namespace == namespace) {
					found = append(found, s)
				}
			}
			return found
		},
		All: func() []model.ServiceName { return all }, Words: func() words.Vocabulary { return in },
	}.Resolve(name)
}

// Names are the names of Services. All is asked only where a name is of none.
type Names struct {
	// Named returns the Services of a name in a namespace, or in all if that is empty.
	Named func(namespace, name string) []model.ServiceName
	All   func() []model.ServiceName
	Words func() words.Vocabulary // for all of them
}

// Resolve is the function Resolve for these names.
func (n Names) Resolve(name string) (model.ServiceName, error) {
	namespace, bare, qualified := strings.Cut(name, "/")
	if !qualified {
		namespace, bare = "", name
	}
	var found []model.ServiceName
	if !qualified || namespace != "" {
		found = n.Named(namespace, bare)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return model.ServiceName{}, &UnknownError{Message: n.Words().Sprintf("%q is the name of several Services: choose %s", name, choices(found))}
	}
	return model.ServiceName{}, &UnknownError{Words: n.Words(), Name: name, Hint: suggest.DidYouMean(similar(name, qualified, n.All()))}
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
