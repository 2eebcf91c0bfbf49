package api

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/suggest"
	"github.com/nftproxy/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/internal/words"
)

// Filter selects the Services of a report. The zero value selects all.
type Filter struct {
	Namespace string // empty: all
	// Names are namespace/name or name, in which * stands for any characters; none: all.
	Names    []string
	Problems bool // only Services with a problem or a note
	// Rows is how many frontends may be listed: a report with more lists none of them.
	// Zero: no limit.
	Rows int
}

// Check returns an error for a malformed pattern.
func (f *Filter) Check() error {
	for _, n := range f.Names {
		if n == "" || len(n) > maxPattern || strings.ContainsAny(n, "[]?\\") {
			return fmt.Errorf("%q is not the name of a Service: write for example shop/web, web or 'shop/*'", n)
		}
	}
	return nil
}

// Selects reports whether the filter names Services.
func (f *Filter) Selects() bool { return f.Namespace != "" || len(f.Names) > 0 }

// Matches reports whether the filter selects a Service by its name.
func (f *Filter) Matches(s model.ServiceName) bool {
	if f.Namespace != "" && s.Namespace != f.Namespace {
		return false
	}
	return len(f.Names) == 0 || slices.ContainsFunc(f.Names, func(pattern string) bool { return matchesName(pattern, s) })
}

// matchesName reports whether a name is like a pattern, in which * stands for any characters: names have
// no other slash than the one behind the namespace.
func matchesName(pattern string, s model.ServiceName) bool {
	name := s.Name
	if strings.Contains(pattern, "/") {
		name = s.String()
	}
	matches, _ := path.Match(pattern, name)
	return matches
}

func (f *Filter) parameters() []parameter {
	return []parameter{
		{name: "namespace", to: &f.Namespace}, {name: "service", to: &f.Names},
		{name: "problems", to: &f.Problems, form: "true or false"}, {name: "rows", to: &f.Rows, form: "a number"},
	}
}

const (
	maxNames   = 50  // patterns of a request: each is compared with each Service
	maxPattern = 400 // bytes; a namespace and a name have up to 317
)

// ParseFilter returns the filter of a request.
func ParseFilter(q url.Values) (*Filter, error) {
	f := new(Filter)
	if err := parse(q, f.parameters()); err != nil {
		return nil, err
	}
	if len(f.Names) > maxNames {
		return nil, fmt.Errorf("service: %d patterns, at most %d are allowed", len(f.Names), maxNames)
	}
	return f, f.Check()
}

const maxListed = 5

// Names find Services by their names.
type Names interface {
	// Named returns the Services of a name in a namespace, or in all if that is empty.
	Named(namespace, name string) []model.ServiceName
	Names() []model.ServiceName // of all
}

// NameList are the names of all Services.
type NameList []model.ServiceName

// Names returns the list.
func (l NameList) Names() []model.ServiceName { return l }

// Named implements [Names].
func (l NameList) Named(namespace, name string) (found []model.ServiceName) {
	for _, s := range l {
		if s.Name == name && (namespace == "" || s.Namespace == namespace) {
			found = append(found, s)
		}
	}
	return found
}

// Resolve returns the Service that a name stands for: namespace/name, or the name alone
// if only one namespace has it. in are the words for all of them. The error is an [UnknownError].
func Resolve(name string, all Names, in words.Vocabulary) (model.ServiceName, error) {
	namespace, bare, qualified := strings.Cut(name, "/")
	if !qualified {
		namespace, bare = "", name
	}
	var found []model.ServiceName
	if !qualified || namespace != "" {
		found = all.Named(namespace, bare)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		slices.SortFunc(found, model.ServiceName.Compare)
		return model.ServiceName{}, &UnknownError{Message: in.Sprintf("%q is the name of several Services: choose %s", name, terminal.List(found, maxListed))}
	}
	return model.ServiceName{}, &UnknownError{Words: in, Name: name, Hint: suggest.DidYouMean(similar(name, qualified, all.Names()))}
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
